// FIONREAD while a writer goes to and fro between carriers: it counts all that was sent when the reader stood still meanwhile, and never says 0 where poll has just said that
// there is something, which many take for the end of file.
#include "check.h"

enum { ROUNDS_OF = 150, MOST = 30000, PIECE = 3000, STREAM = 4000000 };

static uint32_t some(unsigned *seed, uint32_t most) { return 1 + (uint32_t)rand_r(seed) % most; }

// How much of round `i`.
static uint32_t length(int i) {
    unsigned seed = (unsigned)i;
    return some(&seed, MOST);
}

static void in_pieces(int fd, uint32_t n, int salt, unsigned *seed) {
    uint8_t part[PIECE];
    for (uint32_t at = 0, len; at < n; at += len) {
        len = some(seed, PIECE);
        if (len > n - at) len = n - at;
        fill(part, at, len, salt);
        put_all(fd, part, len);
    }
}

static void peer(int fd) {
    unsigned seed = 7;
    for (int i = 0; i < ROUNDS_OF; i++) {
        hear();
        in_pieces(fd, length(i), i, &seed);
        tell();
    }
    hear();
    in_pieces(fd, STREAM, 1, &seed);
}

// Never nothing, also at once; and soon, all that is there.
static void queued(int fd, int all) {
    int there;
    when_readable(fd);
    IS(ioctl(fd, FIONREAD, &there), 0);
    CHECK(there > 0 && there <= all);
    IS(queue_size(fd, FIONREAD, all), all);
}

int main(void) {
    static uint8_t bytes[1 << 20];
    int fd = with_peer(peer), there;
    for (int i = 0; i < ROUNDS_OF; i++) {
        int all = (int)length(i), half = all / 2;
        // What is acknowledged at once keeps the writer from nothing.
        IS(setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &(int){1}, sizeof(int)), 0);
        tell(), hear();
        queued(fd, all);
        get_all(fd, bytes, (size_t)half);
        queued(fd, all - half);
        get_all(fd, bytes + half, (size_t)(all - half));
        same(bytes, 0, (size_t)all, i);
    }
    tell();
    for (size_t at = 0; at < STREAM; at += (size_t)there) {
        when_readable(fd);
        IS(ioctl(fd, FIONREAD, &there), 0);
        CHECK(there > 0 && at + (size_t)there <= STREAM);
        if (there > (int)sizeof bytes) there = sizeof bytes;
        IS(recv(fd, bytes, (size_t)there, MSG_DONTWAIT), there);
        same(bytes, at, (size_t)there, 1);
    }
    peer_ends();
    close(fd);
    say("%d rounds and a stream", ROUNDS_OF);
}
