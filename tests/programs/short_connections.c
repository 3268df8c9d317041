// 2000 connections, or as many as an argument says that is a number, one after the other, each with one exchange or several: no descriptor and no memory is left over.
#include "check.h"

// Pages of memory that this process has in use, not counting what it shares.
static long own_pages(void) {
    long size, resident, shared;
    FILE *file = fopen("/proc/self/statm", "r");
    IS(fscanf(file, "%ld %ld %ld", &size, &resident, &shared), 3);
    fclose(file);
    return resident - shared;
}

int main(int argc, char **argv) {
    struct sockaddr_in at;
    int count = argc > 1 && atoi(argv[1]) > 0 ? atoi(argv[1]) : 2000, listener = listen_on(&at), before = 0;
    long pages = 0;
    for (int i = 0; i < count; i++) {
        if (i == count / 10) before = open_descriptors(), pages = own_pages();
        int a = connect_to(&at), b = accept_from(listener), rounds = i % 5 == 0 ? 20 : 1;
        for (int j = 0; j < rounds; j++) put_pattern(a, 100, i), get_pattern(b, 100, i), put_pattern(b, 3000, i), get_pattern(a, 3000, i);
        close(i % 2 ? a : b);
        IS(recv(i % 2 ? b : a, (char[1]){0}, 1, 0), 0);
        close(i % 2 ? b : a);
    }
    CHECK(open_descriptors() <= before + 1);
    CHECK(own_pages() <= pages + 128);
    say("all connections");
}
