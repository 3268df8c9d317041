// Inner sets that are registered with EPOLLET or EPOLLONESHOT, and two threads that ask the outer one, by poll and by epoll_wait: what one of them looks at is not taken from the
// other, which sleeps.
#include "check.h"

enum { ROUNDS_EACH = 12 };

static int outer;

static void *waits(void *none) {
    struct epoll_event got;
    IS(epoll_wait(outer, &got, 1, PATIENCE), 1);
    return none;
}

static void *polls(void *none) {
    IS(polled(outer, POLLIN, PATIENCE), POLLIN);
    return none;
}

static void *(*const asks[2][2])(void *) = {{polls, polls}, {polls, waits}};

static void both_told(uint32_t how, void *(*const threads[2])(void *)) {
    int ends[2][2], inner[2];
    pthread_t ids[2];
    outer = epoll_create1(0);
    for (int i = 0; i < 2; i++) {
        pair_here(ends[i]);
        inner[i] = epoll_create1(0);
        IS(epoll_add(inner[i], ends[i][0], EPOLLIN), 0);
        IS(epoll_add(outer, inner[i], EPOLLIN | how), 0);
    }
    for (int i = 0; i < 2; i++) IS(pthread_create(&ids[i], NULL, threads[i], NULL), 0);
    sleep_ms(20);
    for (int i = 0; i < 2; i++) put_pattern(ends[i][1], 10, i);
    for (int i = 0; i < 2; i++) joined(ids[i]);
    for (int i = 0; i < 2; i++) close(ends[i][0]), close(ends[i][1]), close(inner[i]);
    close(outer);
}

int main(void) {
    uint32_t hows[] = {0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT};
    for (int k = 0; k < ROUNDS_EACH; k++) {
        for (int i = 0; i < 4; i++) {
            // What was taken by a wait is gone for who polls: only where the wait is level-triggered both are told.
            both_told(hows[i], asks[0]);
            if (hows[i] == 0) both_told(hows[i], asks[1]);
        }
    }
    say("each was told");
}
