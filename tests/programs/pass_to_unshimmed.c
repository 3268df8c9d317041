// SCM_RIGHTS to a process that runs without the preloaded library: it reads what is unread and answers; then the sender's own
// descriptor works on, or reads the end of file.
#include "check.h"

enum { LENGTH = 40000 };

static void peer(int fd) {
    put_pattern(fd, LENGTH, 7);
    tell();
    get_pattern(fd, LENGTH, 7);
    warm_up(fd, true);
}

static void peer_that_ends(int fd) {
    put_pattern(fd, LENGTH, 7);
    tell();
    get_pattern(fd, LENGTH, 7);
    IS(shutdown(fd, SHUT_WR), 0);
    tell();
    hear();
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    for (int i = 0; i < 6; i++) {
        // Started before there is a connection that it could inherit.
        int sides[2];
        IS(socketpair(AF_UNIX, SOCK_STREAM, 0, sides), 0);
        pid_t child = fork();
        if (child == 0) {
            char path[PATH_MAX], number[16], length[16];
            snprintf(path, sizeof path, "%s/echo_raw%s", argv[1], i % 2 ? "-static" : "");
            snprintf(number, sizeof number, "@%d", sides[1]), snprintf(length, sizeof length, "%d", LENGTH);
            close(sides[0]);
            unsetenv("LD_PRELOAD");
            execl(path, path, number, length, NULL);
            _exit(9);
        }
        close(sides[1]);
        bool ends = i >= 4;
        int fd = with_peer(ends ? peer_that_ends : peer);
        if (i < 2 || ends) hear();  // all of it is on this side when the socket is passed
        pass(sides[0], fd);
        if (i >= 2 && !ends) hear();
        IS(ended(child), 0);
        close(sides[0]);
        if (ends) {
            hear();
            IS(recv(fd, (char[1]){0}, 1, 0), 0);
            tell();
        } else {
            warm_up(fd, false);
        }
        peer_ends();
        close(fd);
        say("echoed by a process without the library");
    }
}
