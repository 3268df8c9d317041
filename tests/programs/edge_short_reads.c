// Edge-triggered epoll: a short read is as good as EAGAIN, so the next arrival must be an event.
#include "check.h"

static void peer(int fd) {
    for (int i = 0; i < 500; i++) {
        if (i % 3 == 0) sleep_ms(i % 50 == 0 ? 3 : 0);
        put_pattern(fd, 100, i);
        hear();
    }
}

int main(void) {
    uint8_t text[4000];
    int fd = with_peer(peer), set = epoll_create1(0);
    nonblocking(fd);
    IS(epoll_add(set, fd, EPOLLIN | EPOLLRDHUP | EPOLLET), 0);
    for (int i = 0; i < 500; i++) {
        size_t have = 0;
        while (have < 100) {
            IS(epolled(set, fd, PATIENCE), EPOLLIN);
            ssize_t n = i % 2 ? recv(fd, text + have, sizeof text - have, 0) : read(fd, text + have, sizeof text - have);
            CHECK(n > 0);
            have += (size_t)n;
        }
        IS(have, 100);
        same(text, 0, 100, i);
        tell();
    }
    peer_ends();
    say("500 arrivals, 500 events");
}
