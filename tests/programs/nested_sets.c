// An epoll set in an epoll set in an epoll set, and poll and select on top: readable exactly while the socket is.
#include "check.h"

static void peer(int fd) {
    for (int i = 0; i < 100; i++) hear(), put_pattern(fd, 10, i);
}

// Whoever sleeps on the outer set is woken through the kernel; what it was told for that is not reported once the connection is back on TCP.
static void connection_leaves_its_ring(uint32_t more) {
    int ends[2], inner = epoll_create1(0), outer = epoll_create1(0);
    pair_here(ends);
    IS(epoll_add(outer, inner, EPOLLIN), 0);
    IS(epoll_add(inner, ends[0], EPOLLIN | more), 0);
    IS(epolled(outer, inner, 5), 0);
    put_pattern(ends[1], 10, 1);
    IS(epoll_mod(inner, ends[0], EPOLLIN | more), 0);
    IS(setsockopt(ends[0], SOL_SOCKET, SO_TIMESTAMP, &(int){1}, sizeof(int)), 0);
    // The writer may still be sending again what lay in its ring: on the way, as over a network.
    IS(epolled(inner, ends[0], 5000), EPOLLIN);
    get_pattern(ends[0], 10, 1);
    IS(epolled(inner, ends[0], 5), 0);
    put_pattern(ends[1], 10, 2);
    if (more) {  // it was told of once
        IS(epolled(inner, ends[0], 20), 0);
        IS(epoll_mod(inner, ends[0], EPOLLIN | more), 0);
    }
    IS(epolled(outer, inner, PATIENCE), EPOLLIN);
    IS(epolled(inner, ends[0], PATIENCE), EPOLLIN);
    get_pattern(ends[0], 10, 2);
    IS(epolled(inner, ends[0], 0), 0);
    for (int i = 0; i < 2; i++) close(ends[i]);
    close(inner), close(outer);
}

// Nor once there is no connection any more.
static void connection_is_dissolved(void) {
    int ends[2], inner = epoll_create1(0), outer = epoll_create1(0);
    pair_here(ends);
    IS(epoll_add(outer, inner, EPOLLIN), 0);
    IS(epoll_add(inner, ends[0], EPOLLIN), 0);
    IS(epolled(outer, inner, 5), 0);
    put_pattern(ends[1], 10, 1);
    IS(epoll_mod(inner, ends[0], EPOLLIN), 0);
    IS(connect(ends[0], &(struct sockaddr){.sa_family = AF_UNSPEC}, sizeof(struct sockaddr)), 0);
    IS(epolled(inner, ends[0], PATIENCE) & ~EPOLLERR, EPOLLHUP);
    for (int i = 0; i < 2; i++) close(ends[i]);
    close(inner), close(outer);
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
    connection_leaves_its_ring(0);
    connection_leaves_its_ring(EPOLLONESHOT);
    connection_is_dissolved();
    say("readable through three sets");
}
