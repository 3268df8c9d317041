// SO_SNDTIMEO ends a wait for room, also where others waited without a limit before; what was taken before it arrives.
#include "check.h"

enum { FIRST = 1 << 20 };

static void peer(int fd) {
    for (int i = 0; i < 8; i++) {
        hear();
        usleep(3000);
        get_pattern(fd, FIRST, i);
    }
    hear();
    uint64_t n;
    CHECK(read(side, &n, 8) == 8);
    uint8_t *all = malloc(n);
    get_all(fd, all, n);
    same(all, 0, n, 5);
    IS(recv(fd, all, 1, 0), 0);
}

int main(void) {
    enum { HUGE_ = 64 << 20 };
    uint8_t *all = malloc(HUGE_);
    fill(all, 0, HUGE_, 5);
    int fd = with_peer(peer);
    // More than fits a small ring, and for no longer than a writer waits for its reader.
    for (int i = 0; i < 8; i++) tell(), put_pattern(fd, FIRST, i);
    struct timeval t = {0, 200000};
    IS(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t), 0);
    uint64_t sent = 0;
    int64_t start;
    ssize_t n;
    do {
        start = now_ms();
        n = send(fd, all + sent, HUGE_ - sent, MSG_NOSIGNAL);
        if (n > 0) sent += (uint64_t)n;
        CHECK(sent < HUGE_);
    } while (n > 0);
    CHECK(n == -1 && errno == EAGAIN);
    CHECK(now_ms() - start >= 190);
    say("timed out");
    tell();
    CHECK(write(side, &sent, 8) == 8);
    IS(shutdown(fd, SHUT_WR), 0);
    peer_ends();
    say("what was taken has arrived");
}
