// A reader that hands its socket on gives back what lies in the ring, and it goes over TCP once more: until that is through, the writer is not called writable.
#include "check.h"

enum { STEPS = 40 };
static const int little = 4096;

// Sends what there is room for.
static size_t send_some(int fd, size_t at) {
    uint8_t text[1000];
    fill(text, at, sizeof text, 1);
    ssize_t n = send(fd, text, sizeof text, MSG_NOSIGNAL);
    CHECK(n > 0 || (n < 0 && errno == EAGAIN));
    return n > 0 ? (size_t)n : 0;
}

static void peer(int fd) {
    size_t at = 0;
    int set = epoll_create1(0);
    nonblocking(fd);
    IS(epoll_add(set, fd, EPOLLOUT), 0);
    // Of what a ring holds, the kernel takes but a part.
    IS(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &little, sizeof little), 0);
    for (size_t n; (n = send_some(fd, at)); at += n) {}
    tell();
    hear();
    for (int i = 0; i < STEPS; i++) {
        if (i % 2) IS(polled(fd, POLLOUT, PATIENCE), POLLOUT);
        else IS(epolled(set, fd, PATIENCE), EPOLLOUT);
        size_t n = send_some(fd, at);
        CHECK(n > 0);
        at += n;
    }
    IS(shutdown(fd, SHUT_WR), 0);
}

int main(void) {
    uint8_t text[500];
    size_t at = 0;
    int fd = with_peer(peer);
    IS(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &little, sizeof little), 0);
    int sides[2];
    IS(socketpair(AF_UNIX, SOCK_STREAM, 0, sides), 0);
    hear();
    pass(sides[0], fd);
    tell();
    for (ssize_t n; (n = recv(fd, text, sizeof text, 0)); at += (size_t)n) {
        CHECK(n > 0);
        same(text, at, (size_t)n, 1);
        sleep_ms(1);
    }
    say("every report was true");
    peer_ends();
}
