// exec: a socket that is not close-on-exec goes on in the new image, with what was unread and unsent, by whichever of its
// descriptors are left; one that is ends.
#include "check.h"

static void peer(int fd) {
    put_pattern(fd, 30000, 1);
    tell();
    hear();
    get_pattern(fd, 30000, 2);
    warm_up(fd, true);
    IS(recv(fd, (char[1]){0}, 1, 0), 0);
}

static void short_peer(int fd) {
    IS(recv(fd, (char[1]){0}, 1, 0), 0);
    tell();
}

int main(int argc, char **argv) {
    if (argc == 6 && !strcmp(argv[1], "--again")) {
        int fd = atoi(argv[2]), epoll = atoi(argv[3]), copy = atoi(argv[5]);
        side = atoi(argv[4]);
        uint8_t text[20000];
        get_all(copy, text, 1000), same(text, 10000, 1000, 1);
        IS(close(copy), 0);
        IS(epolled(epoll, fd, PATIENCE), EPOLLIN);
        for (size_t at = 11000; at < 30000; at += 1000) get_all(fd, text, 1000), same(text, at, 1000, 1);
        IS(epolled(epoll, fd, 0), 0);
        tell();
        warm_up(fd, false);
        say("the new image has gone on");
        return 0;
    }
    if (argc == 3 && !strcmp(argv[1], "--hear")) {  // the peer has seen the end of file while this image runs
        side = atoi(argv[2]);
        hear();
        return 0;
    }
    int fd = with_peer(peer), set = epoll_create1(0);
    IS(epoll_add(set, fd, EPOLLIN), 0);
    hear();
    get_pattern(fd, 10000, 1);
    put_pattern(fd, 30000, 2);
    pid_t child = fork();
    if (child == 0) {
        char a[16], b[16], c[16], d[16];
        snprintf(a, sizeof a, "%d", fd), snprintf(b, sizeof b, "%d", set), snprintf(c, sizeof c, "%d", side), snprintf(d, sizeof d, "%d", dup(fd));
        execl("/proc/self/exe", argv[0], "--again", a, b, c, d, NULL);
        _exit(9);
    }
    close(fd);
    IS(ended(child), 0);
    peer_ends();
    child = fork();
    if (child == 0) {
        fd = with_peer(short_peer);
        IS(fcntl(fd, F_SETFD, FD_CLOEXEC), 0);
        close(set);
        char number[16];
        snprintf(number, sizeof number, "%d", side);
        execl("/proc/self/exe", argv[0], "--hear", number, NULL);
        _exit(9);
    }
    IS(ended(child), 0);
    say("close-on-exec has ended the other");
}
