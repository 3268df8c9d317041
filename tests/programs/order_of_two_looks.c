// One thread waits on many connections without a pause while another writes on them in turn: whatever the waits come between,
// who was written to first is told of first. In some rounds the waiting thread sleeps before the last of them is written to,
// so that the next round begins with one connection that is looked at and others that have to ring.
#include "check.h"

#include <stdatomic.h>

enum { MANY = 12, ROUNDS_OF_ALL = 500 };

static int ends[MANY][2], order[MANY];
static atomic_int taken[MANY];

static void put(int which, int round) {
    int there = 0;
    put_all(ends[which][1], "x", 1);
    // It has come: whoever looks from now on is to see it, or saw it.
    while (there == 0 && atomic_load(&taken[which]) == round) IS(ioctl(ends[which][0], FIONREAD, &there), 0);
}

static void shuffle(unsigned *seed) {
    for (int i = 0; i < MANY; i++) order[i] = i;
    for (int i = MANY - 1; i > 0; i--) {
        *seed = *seed * 1103515245 + 12345;
        int k = (int)(*seed >> 16) % (i + 1), kept = order[i];
        order[i] = order[k], order[k] = kept;
    }
}

// The connection that was written to last in the round before has the second place in this one.
static void comes_second(int last) {
    for (int i = 0; i < MANY; i++)
        if (order[i] == last) order[i] = order[1];
    order[1] = last;
}

static void *writes(void *unused) {
    unsigned seed = 7;
    (void)unused;
    for (int round = 0; round < ROUNDS_OF_ALL; round++) {
        int last = order[MANY - 1];
        shuffle(&seed);
        if (round % 8 == 7) comes_second(last);
        for (int i = 0; i < MANY; i++) {
            if (round % 8 == 6 && i == MANY - 1) sleep_ms(3);
            put(order[i], round);
        }
        // All of them were told of.
        get_all(ends[order[MANY - 1]][1], &(char){0}, 1);
    }
    return NULL;
}

int main(void) {
    int set = epoll_create1(0), at = 0;
    pthread_t writer;
    for (int i = 0; i < MANY; i++) {
        struct epoll_event ev = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        pair_here(ends[i]);
        IS(epoll_ctl(set, EPOLL_CTL_ADD, ends[i][0], &ev), 0);
    }
    IS(pthread_create(&writer, NULL, writes, NULL), 0);
    for (int round = 0; round < ROUNDS_OF_ALL; at == MANY ? round++, at = 0 : 0) {
        struct epoll_event got[MANY];
        // (Without a limit on time that anything else could meet.)
        int n = epoll_wait(set, got, MANY, round % 2 ? 0 : PATIENCE);
        CHECK(n >= 0 && at + n <= MANY);
        for (int i = 0; i < n; i++, at++) {
            int which = (int)got[i].data.u32;
            if (which != order[at]) fprintf(stderr, "round %d, place %d of a wait of %d, number %d\n", round, i, n, at);
            IS(which, order[at]);
            get_all(ends[which][0], &(char){0}, 1);
            atomic_fetch_add(&taken[which], 1);
        }
        if (at < MANY) continue;
        // What was told of and is empty leaves the kernel's list in a wait.
        IS(epoll_wait(set, got, MANY, 0), 0);
        put_all(ends[order[MANY - 1]][0], "y", 1);
    }
    joined(writer);
    say("in turn");
}
