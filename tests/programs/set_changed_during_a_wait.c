// A set that two processes have: one waits on it without a pause while the other asks for nothing there, has something come, and
// takes that itself before it asks again. Whatever the wait comes between, it is told of nothing.
#include "check.h"

#include <stdatomic.h>

enum { ROUNDS_OF_ALL = 3000 };

static struct {
    atomic_int taken;    // what came while it was asked for was taken by who waits, so often
    atomic_int nothing;  // it is not asked for
    atomic_int over;
} *common;

static int set, ends[2];

static void change(uint32_t events) {
    struct epoll_event event = {.events = events, .data.u64 = 7};
    IS(epoll_ctl(set, EPOLL_CTL_MOD, ends[0], &event), 0);
}

static void pause_for(int rounds) {
    for (volatile int i = 0; i < rounds; i++) {}
}

static void changes(void) {
    for (int round = 1; round <= ROUNDS_OF_ALL; round++) {
        // Soon after the wait has begun, so that it goes on at once behind this.
        pause_for(round % 16 * 200);
        put_all(ends[1], "x", 1);
        while (atomic_load(&common->taken) != round) {}
        pause_for(round % 7 * 100);
        change(0);
        atomic_store(&common->nothing, 1);
        put_all(ends[1], "y", 1);
        pause_for(20000);
        get_all(ends[0], &(char){0}, 1);
        atomic_store(&common->nothing, 0);
        change(EPOLLIN);
    }
    atomic_store(&common->over, 1);
}

int main(void) {
    common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(common != MAP_FAILED);
    set = epoll_create1(0);
    pair_here(ends);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7};
    IS(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event), 0);
    pid_t child = fork();
    if (child == 0) {
        changes();
        exit(0);
    }
    int told = 0;
    while (!atomic_load(&common->over)) {
        struct epoll_event got[4];
        int n = epoll_wait(set, got, 4, 1);
        CHECK(n >= 0 && n <= 1);
        if (n == 0) continue;
        int nothing = atomic_load(&common->nothing);
        if (nothing) fprintf(stderr, "told of what is not asked for, after %d\n", told);
        IS(nothing, 0);
        get_all(ends[0], &(char){0}, 1);
        atomic_store(&common->taken, ++told);
    }
    IS(ended(child), 0);
    say("told %d times", told);
}
