// A program takes up a connection that it was started with while the one that started it closes its own descriptor: at whatever moment that is, the connection is the program's.
#include "check.h"

enum { TURNS = 60, LENGTH = 20000 };

static void peer(int fd) {
    put_pattern(fd, LENGTH, 7);
    get_pattern(fd, LENGTH, 7);
    IS(recv(fd, (char[1]){0}, 1, 0), 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    char path[PATH_MAX], length[16], number[16];
    snprintf(path, sizeof path, "%s/echo_raw", argv[1]), snprintf(length, sizeof length, "%d", LENGTH);
    for (int turn = 0; turn < TURNS; turn++) {
        int fd = with_peer(peer);
        snprintf(number, sizeof number, "%d", fd);
        char *const args[] = {path, number, length, NULL};
        pid_t child;
        IS(posix_spawn(&child, path, NULL, NULL, args, environ), 0);
        // To take it up takes a program some milliseconds.
        usleep((useconds_t)turn * 150);
        IS(close(fd), 0);
        IS(ended(child), 0);
        peer_ends();
    }
    say("%d turns", TURNS);
}
