// A send with MSG_ZEROCOPY is told of in the error queue: poll, select and epoll say so, beside room, each time.
#include "check.h"

#include <linux/errqueue.h>

enum { LARGE = 100000, TIMES = 3 };

static void peer(int fd) {
    for (int i = 0; i < TIMES; i++) {
        get_pattern(fd, LARGE, i);
        put_pattern(fd, 100, i);
    }
    char end;
    IS(recv(fd, &end, 1, 0), 0);
}

static bool told(int fd) {
    char control[200];
    struct msghdr message = {.msg_control = control, .msg_controllen = sizeof control};
    return recvmsg(fd, &message, MSG_ERRQUEUE) == 0;
}

int main(void) {
    static uint8_t memory[LARGE];
    int fd = with_peer(peer), one = 1, level = epoll_create1(0), edge = epoll_create1(0), none = epoll_create1(0);
    IS(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one), 0);
    IS(epoll_add(level, fd, EPOLLIN | EPOLLOUT), 0);
    IS(epoll_add(edge, fd, EPOLLIN | EPOLLOUT | EPOLLET), 0);
    IS(epoll_add(none, fd, 0), 0);
    epolled(edge, fd, 100);
    for (int i = 0; i < TIMES; i++) {
        fill(memory, 0, LARGE, i);
        for (size_t at = 0; at < LARGE;) {
            ssize_t n = send(fd, memory + at, LARGE - at, MSG_ZEROCOPY);
            CHECK(n > 0);
            at += (size_t)n;
        }
        get_pattern(fd, 100, i);
        CHECK(polled(fd, 0, PATIENCE) == POLLERR);
        usleep(100000);  // all of it is told by then
        fd_set in, out;
        FD_ZERO(&in);
        FD_SET(fd, &in);
        out = in;
        struct timeval limit = {PATIENCE / 1000, 0};
        IS(select(fd + 1, &in, &out, NULL, &limit), 2);
        int by_edge = epolled(edge, fd, PATIENCE), by_level = epolled(level, fd, PATIENCE);
        say("edge %x, level %x, nothing asked %x", by_edge, by_level, epolled(none, fd, PATIENCE));
        CHECK(told(fd));
        while (told(fd)) {}
        by_edge = epolled(edge, fd, 10);
        by_level = epolled(level, fd, 10);
        say("read: edge %x, level %x, nothing asked %x", by_edge, by_level, epolled(none, fd, 10));
    }
    IS(shutdown(fd, SHUT_WR), 0);
    peer_ends();
}
