// What was ready in a wait that had no place for it, was read without having been told of, and becomes ready anew after the set
// was asked from outside: that is told. (Whoever is next in the order may not be waited for for ever.)
#include "check.h"

enum { PAIRS = 3 };

static int set, ends[PAIRS][2];

static int ready(int n, int ms) {
    struct epoll_event got[PAIRS];
    return epoll_wait(set, got, n, ms);
}

static int asked(int ms) {
    struct pollfd from_outside = {.fd = set, .events = POLLIN};
    return poll(&from_outside, 1, ms);
}

static void round_of(int number) {
    for (int i = 0; i < PAIRS; i++) put_pattern(ends[i][1], 10, number);
    IS(ready(1, PATIENCE), 1);
    for (int i = 0; i < PAIRS; i++) get_pattern(ends[i][0], 10, number);
    // Nothing is left: whoever asks sleeps, armed.
    IS(asked(2), 0);
    for (int i = 0; i < PAIRS; i++) {
        put_pattern(ends[i][1], 10, number);
        IS(ready(PAIRS, PATIENCE), 1);
        get_pattern(ends[i][0], 10, number);
        IS(asked(2), 0);
    }
}

int main(void) {
    set = epoll_create1(0);
    for (int i = 0; i < PAIRS; i++) {
        pair_here(ends[i]);
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)i};
        IS(epoll_ctl(set, EPOLL_CTL_ADD, ends[i][0], &event), 0);
    }
    for (int number = 0; number < 20; number++) round_of(number);
    say("told");
}
