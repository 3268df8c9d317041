// One socket in level-triggered, edge-triggered and one-shot sets at once, and polled too: each says its own.
#include "check.h"

static void peer(int fd) {
    for (int i = 0; i < 100; i++) hear(), put_pattern(fd, 10, i);
}

int main(void) {
    int fd = with_peer(peer), level = epoll_create1(0), edge = epoll_create1(0), once = epoll_create1(0);
    IS(epoll_add(level, fd, EPOLLIN), 0);
    IS(epoll_add(edge, fd, EPOLLIN | EPOLLET), 0);
    IS(epoll_add(once, fd, EPOLLIN | EPOLLONESHOT), 0);
    for (int i = 0; i < 100; i++) {
        tell();
        IS(epolled(i % 3 == 0 ? level : i % 3 == 1 ? edge : once, fd, PATIENCE), EPOLLIN);
        if (i % 3 != 0) IS(epolled(level, fd, PATIENCE), EPOLLIN);
        if (i % 3 != 1) IS(epolled(edge, fd, PATIENCE), EPOLLIN);
        if (i % 3 != 2) IS(epolled(once, fd, PATIENCE), EPOLLIN);
        IS(polled(fd, POLLIN, 0), POLLIN);
        IS(epolled(level, fd, 0), EPOLLIN);
        IS(epolled(edge, fd, 0), 0);
        IS(epolled(once, fd, 0), 0);
        get_pattern(fd, 10, i);
        IS(epolled(level, fd, 0), 0);
        IS(epoll_mod(once, fd, EPOLLIN | EPOLLONESHOT), 0);
    }
    peer_ends();
    say("three sets, each its own way");
}
