// Three streams, one after the other, each far longer than any ring: all of it arrives in order while the rings grow. Under the shim two of them come to rings of more
// than 1 MiB, and no more than two.
#include "check.h"

enum { STREAMS = 3, PIECE = 64 << 10 };
static const uint64_t LENGTH = 300ull << 20, ORDINARY = 1 << 20;

// Sends until nothing more goes; returns how much that was.
static uint64_t fill_up(int fd, uint64_t *at, uint64_t *words) {
    uint64_t before = *at;
    while (*at < LENGTH) {
        size_t n = LENGTH - *at < PIECE ? LENGTH - *at : PIECE;
        for (size_t i = 0; i <= n / 8; i++) words[i] = *at / 8 + i;
        ssize_t put = send(fd, (char *)words + *at % 8, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (put < 0) {
            CHECK(errno == EAGAIN);
            break;
        }
        *at += (uint64_t)put;
    }
    return *at - before;
}

static void take_all(int fd, uint64_t *at, uint64_t end, uint64_t *words) {
    while (*at < end) {
        size_t within = *at % 8;
        ssize_t got = recv(fd, (char *)words + within, PIECE, 0);
        CHECK(got > 0);
        for (size_t i = within != 0; i < (within + (size_t)got) / 8; i++) IS(words[i], *at / 8 + i);
        *at += (uint64_t)got;
    }
    IS(*at, end);
}

int main(void) {
    static uint64_t words[PIECE / 8 + 2];
    int pairs[STREAMS][2], large = 0;
    for (int i = 0; i < STREAMS; i++) {
        uint64_t sent = 0, taken = 0, most = 0;
        pair_here(pairs[i]);
        while (taken < LENGTH) {
            uint64_t n = fill_up(pairs[i][0], &sent, words);
            // What a ring holds that is as large as it will be, not the kernel's buffers of the beginning.
            if (sent > LENGTH / 2 && sent < LENGTH) most = n > most ? n : most;
            take_all(pairs[i][1], &taken, sent, words);
        }
        large += most > 2 * ORDINARY;
        fprintf(stderr, "stream %d: %llu bytes at a time\n", i, (unsigned long long)most);
    }
    bool shimmed = getenv("LD_PRELOAD") != NULL && getenv("GINNEL_CHAOS") == NULL;
    if (shimmed) IS(large, 2);
    say("every byte in its place");
}
