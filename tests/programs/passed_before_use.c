// A socket is sent over a unix socket before its first use, and lies there while it is used here. Then a process that runs without the preloaded library takes it, and
// echoes on it; after that it is used here again.
#include "check.h"

enum { LENGTH = 40000 };

static void peer(int fd) {
    warm_up(fd, true);
    hear();
    put_pattern(fd, LENGTH, 7);
    get_pattern(fd, LENGTH, 7);
    warm_up(fd, true);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    int here[2], sides[2];
    pair_here(here);
    close(here[0]), close(here[1]);
    IS(socketpair(AF_UNIX, SOCK_STREAM, 0, sides), 0);
    int fd = with_peer_and(peer, false);
    // It is the passed one alone that the other process has.
    IS(fcntl(fd, F_SETFD, FD_CLOEXEC), 0);
    pass(sides[0], fd);
    warm_up(fd, false);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char path[PATH_MAX], number[16], length[16];
        snprintf(path, sizeof path, "%s/echo_raw", argv[1]);
        snprintf(number, sizeof number, "@%d", sides[1]), snprintf(length, sizeof length, "%d", LENGTH);
        unsetenv("LD_PRELOAD");
        execl(path, path, number, length, NULL);
        _exit(9);
    }
    tell();
    IS(ended(child), 0);
    warm_up(fd, false);
    peer_ends();
    close(fd);
    say("echoed by a process without the library");
}
