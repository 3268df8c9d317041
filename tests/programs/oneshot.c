// EPOLLONESHOT: one event, then silence until MOD; what waits is reported as soon as it is armed again.
#include "check.h"

static void peer(int fd) {
    for (int i = 0; i < 200; i++) hear(), put_pattern(fd, 10, i);
}

int main(void) {
    int fd = with_peer(peer), set = epoll_create1(0);
    IS(epoll_add(set, fd, EPOLLIN | EPOLLONESHOT), 0);
    for (int i = 0; i < 200; i++) {
        tell();
        IS(epolled(set, fd, PATIENCE), EPOLLIN);
        IS(epolled(set, fd, i % 50 == 0 ? 20 : 0), 0);
        if (i % 2) {  // armed while data is unread
            IS(epoll_mod(set, fd, EPOLLIN | EPOLLONESHOT), 0);
            IS(epolled(set, fd, PATIENCE), EPOLLIN);
        }
        get_pattern(fd, 10, i);
        IS(epoll_mod(set, fd, EPOLLIN | EPOLLONESHOT | (i % 3 ? EPOLLET : 0u)), 0);
        IS(epolled(set, fd, 0), 0);
    }
    IS(epoll_mod(set, fd, EPOLLIN | EPOLLOUT | EPOLLONESHOT), 0);
    CHECK(epolled(set, fd, PATIENCE) & EPOLLOUT);
    IS(epolled(set, fd, 0), 0);
    peer_ends();
    say("one event per arming");
}
