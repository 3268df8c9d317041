// A set made before fork works in the child, and goes on working in the parent; either may change it.
#include "check.h"

static void peer(int fd) {
    for (int i = 0; i < 40; i++) hear(), put_pattern(fd, 10, i);
}

int main(void) {
    int fd = with_peer(peer), set = epoll_create1(0);
    IS(epoll_add(set, fd, EPOLLIN), 0);
    for (int i = 0; i < 40; i++) {
        if (i % 4 == 3) {
            tell();
            IS(epolled(set, fd, PATIENCE), EPOLLIN);
            get_pattern(fd, 10, i);
            continue;
        }
        pid_t child = fork();
        if (child == 0) {
            if (i % 4 == 1) {
                IS(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL), 0);
                IS(epoll_add(set, fd, EPOLLIN | EPOLLET), 0);
            }
            tell();
            IS(epolled(set, fd, PATIENCE), EPOLLIN);
            get_pattern(fd, 10, i);
            if (i % 4 == 2) IS(epoll_mod(set, fd, EPOLLIN), 0);
            exit(0);
        }
        IS(ended(child), 0);
    }
    peer_ends();
    say("a set is shared across fork");
}
