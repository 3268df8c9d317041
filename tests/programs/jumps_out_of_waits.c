// A time limit that is made with a signal handler and siglongjmp ends waits on a set, wherever they are. The set goes on, and tells
// of what is there.
#include "check.h"

#include <setjmp.h>

enum { CONNECTIONS = 3, ROUNDS_OF_ALL = 3000, LIMIT = 500000 };  // µs

static sigjmp_buf out;
static volatile sig_atomic_t in_wait;

static void ends_it(int signal) {
    (void)signal;
    if (!in_wait) return;
    in_wait = 0;
    siglongjmp(out, 1);
}

// The number of events, or −1: the time was up.
static int waited(int set, struct epoll_event *got, int room, int ms, int limit_us) {
    struct itimerval limit = {.it_value.tv_usec = limit_us};
    if (sigsetjmp(out, 1)) return -1;
    IS(setitimer(ITIMER_REAL, &limit, NULL), 0);
    in_wait = 1;
    int n = epoll_wait(set, got, room, ms);
    in_wait = 0;
    CHECK(n >= 0 || errno == EINTR);
    return n < 0 ? 0 : n;
}

int main(void) {
    int set = epoll_create1(0), ends[CONNECTIONS][2];
    for (int i = 0; i < CONNECTIONS; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        pair_here(ends[i]);
        IS(epoll_ctl(set, EPOLL_CTL_ADD, ends[i][0], &event), 0);
    }
    struct sigaction action = {.sa_handler = ends_it};
    IS(sigaction(SIGALRM, &action, NULL), 0);
    int jumps = 0;
    unsigned seed = 1;
    for (int round = 0; round < ROUNDS_OF_ALL; round++) {
        int which = round % CONNECTIONS;
        struct epoll_event got[CONNECTIONS];
        // Now and then there is nothing.
        for (int n = -1; n < 0 && round % 64 == 0; jumps += n < 0) n = waited(set, got, CONNECTIONS, 1, LIMIT);
        put_all(ends[which][1], "x", 1);
        // The first limit comes at any time, and those behind it come late: whoever is left alone is told.
        seed = seed * 1103515245 + 12345;
        int limit = 1 + (int)(seed >> 16) % 60, n;
        while ((n = waited(set, got, CONNECTIONS, round % 2 ? PATIENCE : 0, limit)) <= 0) jumps += n < 0, limit = LIMIT;
        IS(n, 1);
        IS(got[0].data.u32, which);
        get_all(ends[which][0], &(char){0}, 1);
    }
    CHECK(jumps > 0);
    say("left and come back to");
}
