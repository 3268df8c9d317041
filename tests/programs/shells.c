// system, popen and posix_spawn with connections open: they run, and the connections go on; a shell may write to one.
#include "check.h"

static void peer(int fd) {
    for (int i = 0; i < 4; i++) get_pattern(fd, 1000, i), put_pattern(fd, 1000, i);
    uint8_t text[6];
    get_all(fd, text, 6);
    CHECK(!memcmp(text, "shell\n", 6));
    get_pattern(fd, 1000, 9);
}

static void exchange(int fd, int i) { put_pattern(fd, 1000, i), get_pattern(fd, 1000, i); }

int main(void) {
    char text[100];
    int fd = with_peer(peer);
    exchange(fd, 0);
    IS(system("exit 3"), 3 << 8);
    exchange(fd, 1);
    FILE *f = popen("echo from the shell", "r");
    CHECK(f && fgets(text, sizeof text, f) && !strcmp(text, "from the shell\n"));
    IS(pclose(f), 0);
    exchange(fd, 2);
    pid_t child;
    char *args[] = {"true", NULL};
    IS(posix_spawnp(&child, "true", NULL, NULL, args, environ), 0);
    IS(ended(child), 0);
    exchange(fd, 3);
    int low = dup2(fd, 9);  // a shell knows numbers of one digit
    CHECK(low == 9);
    IS(system("echo shell >&9"), 0);
    put_pattern(fd, 1000, 9);
    peer_ends();
    say("all ran");
}
