// A connection as a FILE: fdopen, fprintf, fgets, dprintf, among reads and writes before and after.
#include "check.h"

static void peer(int fd) {
    FILE *f = fdopen(fd, "r+");
    char line[100];
    CHECK(f);
    for (int i = 0; i < 100; i++) {
        CHECK(fprintf(f, "line %d\n", i) > 0 && fflush(f) == 0);
        CHECK(fgets(line, sizeof line, f) && atoi(line + 7) == i);
    }
    CHECK(fputs("last", f) >= 0);
    IS(fclose(f), 0);
}

int main(void) {
    char line[100];
    int fd = with_peer(peer);
    FILE *in = fdopen(dup(fd), "r");
    for (int i = 0; i < 100; i++) {
        char expected[20];
        CHECK(fgets(line, sizeof line, in));
        snprintf(expected, sizeof expected, "line %d\n", i);
        CHECK(!strcmp(line, expected));
        if (i % 2) CHECK(dprintf(fd, "answer %d\n", i) > 0);
        else {
            int n = snprintf(line, sizeof line, "answer %d\n", i);
            IS(write(fd, line, (size_t)n), n);
        }
    }
    CHECK(fgets(line, sizeof line, in) && !strcmp(line, "last"));
    CHECK(!fgets(line, sizeof line, in) && feof(in));
    fclose(in);
    close(fd);
    peer_ends();
    say("100 lines each way");
}
