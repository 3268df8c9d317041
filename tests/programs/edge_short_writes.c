// Edge-triggered epoll: a short write is as good as EAGAIN, so room must be an event.
#include "check.h"

enum { ALL = 40 << 20 };

static void peer(int fd) {
    get_pattern(fd, ALL, 3);
}

int main(void) {
    uint8_t *text = malloc(ALL);
    fill(text, 0, ALL, 3);
    int fd = with_peer(peer), set = epoll_create1(0), waits = 0;
    nonblocking(fd);
    IS(epoll_add(set, fd, EPOLLIN | EPOLLOUT | EPOLLET), 0);
    CHECK(epolled(set, fd, PATIENCE) & EPOLLOUT);
    for (size_t at = 0; at < ALL;) {
        ssize_t n = write(fd, text + at, ALL - at);
        CHECK(n > 0 || errno == EAGAIN);
        if (n > 0) at += (size_t)n;
        if (at == ALL) break;
        CHECK(epolled(set, fd, PATIENCE) == EPOLLOUT);
        waits++;
    }
    CHECK(waits > 2);
    peer_ends();
    say("every short write was followed by an event");
}
