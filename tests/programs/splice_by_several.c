// Three threads splice out of one socket, each into a pipe of its own: each byte comes to one of them.
#include "check.h"

enum { ALL = 10000, TAKERS = 3 };

static int fd;
static uint8_t seen[ALL];

// Each number and its complement, so that a part of one is noticed.
static void peer(int to) {
    for (uint32_t i = 0; i < ALL; i++) put_all(to, (uint32_t[2]){i, ~i}, 8);
    IS(shutdown(to, SHUT_WR), 0);
    IS(recv(to, &(char){0}, 1, 0), 0);
}

static void *take(void *none) {
    int p[2];
    IS(pipe(p), 0);
    for (;;) {
        uint32_t two[2];
        ssize_t n = splice(fd, NULL, p[1], NULL, 8, 0);
        CHECK(n >= 0);
        if (n == 0) return none;
        IS(n, 8);
        IS(read(p[0], two, 8), 8);
        CHECK(two[0] == ~two[1] && two[0] < ALL);
        CHECK(!seen[two[0]]);
        seen[two[0]] = 1;
    }
}

int main(void) {
    fd = with_peer(peer);
    pthread_t takers[TAKERS];
    for (int i = 0; i < TAKERS; i++) IS(pthread_create(&takers[i], NULL, take, NULL), 0);
    for (int i = 0; i < TAKERS; i++) joined(takers[i]);
    for (int i = 0; i < ALL; i++) CHECK(seen[i]);
    say("each of %d once", ALL);
    IS(close(fd), 0);
    peer_ends();
}
