// An epoll set in an epoll set in an epoll set, and poll and select on top: readable exactly while the socket is.
#include "check.h"

static void peer(int fd) {
    for (int i = 0; i < 100; i++) hear(), put_pattern(fd, 10, i);
}

int main(void) {
    int fd = with_peer(peer), inner = epoll_create1(0), middle = epoll_create1(0), outer = epoll_create1(0);
    IS(epoll_add(outer, middle, EPOLLIN), 0);  // before there is anything in it
    IS(epoll_add(middle, inner, EPOLLIN), 0);
    IS(epoll_add(inner, fd, EPOLLIN), 0);
    for (int i = 0; i < 100; i++) {
        IS(epolled(outer, middle, 0), 0);
        IS(polled(outer, POLLIN, 0), 0);
        tell();
        switch (i % 3) {
        case 0: IS(epolled(outer, middle, PATIENCE), EPOLLIN); break;
        case 1: IS(polled(outer, POLLIN, PATIENCE), POLLIN); break;
        default: {
            fd_set r;
            FD_ZERO(&r);
            FD_SET(middle, &r);
            IS(select(middle + 1, &r, NULL, NULL, NULL), 1);
        }
        }
        IS(epolled(middle, inner, 0), EPOLLIN);
        IS(epolled(inner, fd, 0), EPOLLIN);
        IS(epolled(inner, fd, 0), EPOLLIN);
        get_pattern(fd, 10, i);
        IS(epolled(inner, fd, 0), 0);
    }
    peer_ends();
    say("readable through three sets");
}
