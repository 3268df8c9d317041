// Edge-triggered: bytes that were told of in a ring, and not read, come over TCP then, piece by piece. A
// read that gets less than it asked for has read all there is (epoll(7)): the next piece is an edge.
#include "check.h"
#include <sys/epoll.h>

enum { ALL = 48 << 10 };

// Whoever asks for times of arrival asks for the kernel: the connection goes back to TCP.
static void sends(int fd) {
    int yes = 1;
    hear();
    put_pattern(fd, ALL, 5);
    tell();
    hear();
    IS(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &yes, sizeof yes), 0);
    tell();
}

int main(void) {
    static uint8_t bytes[ALL];
    int little = 4096, set = epoll_create1(0);
    int fd = with_peer(sends);
    IS(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &little, sizeof little), 0);
    IS(epoll_add(set, fd, EPOLLIN | EPOLLET), 0);
    tell();
    IS(epolled(set, fd, PATIENCE), EPOLLIN);
    hear();
    while (epolled(set, fd, 0)) {}
    tell();
    hear();
    for (size_t had = 0; had < ALL;) {
        ssize_t got = recv(fd, bytes + had, ALL - had, MSG_DONTWAIT);
        if (got < 0) IS(errno, EAGAIN);
        if (got > 0) same(bytes + had, had, (size_t)got, 5), had += (size_t)got;
        if (had < ALL) CHECK(epolled(set, fd, PATIENCE) & EPOLLIN);
    }
    peer_ends();
    say("told piece by piece");
}
