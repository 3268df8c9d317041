// A program that is started has the epoll sets that an exec leaves open, as they are, and hears of what is changed in them later.
#define _GNU_SOURCE
#include <sched.h>
#include "check.h"

static char *child[4] = {NULL, "0", NULL, NULL};
static int ends[2], set;

static int execs(void *unused) {
    (void)unused;
    execv("/proc/self/exe", child);
    _exit(9);
}

static pid_t spawned(void) {
    pid_t pid;
    IS(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, child, environ), 0);
    return pid;
}

static pid_t cloned(void) {
    static char stack[1 << 20] __attribute__((aligned(16)));
    pid_t pid = clone(execs, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
    CHECK(pid > 0);
    return pid;
}

static pid_t vforked(void) {
    pid_t pid = vfork();
    if (pid == 0) execv("/proc/self/exe", child), _exit(9);
    CHECK(pid > 0);
    return pid;
}

int main(int argc, char **argv) {
    struct epoll_event event;
    if (argc > 2) {
        // Nothing at first.
        IS(epoll_wait(atoi(argv[2]), &event, 1, 10), 0);
        say("nothing yet");
        IS(epoll_wait(atoi(argv[2]), &event, 1, -1), 1);
        IS(event.events, EPOLLOUT);
        return 0;
    }
    child[0] = argv[0];
    pid_t (*const starts[])(void) = {spawned, cloned, vforked};
    for (int i = 0; i < 3; i++) {
        pair_here(ends);
        for (int k = 0; k < 2; k++) IS(fcntl(ends[k], F_SETFD, FD_CLOEXEC), 0);
        set = epoll_create1(0);
        static char number[12];
        snprintf(number, sizeof number, "%d", set);
        child[2] = number;
        IS(epoll_add(set, ends[0], EPOLLOUT), 0);
        IS(epolled(set, ends[0], 0), EPOLLOUT);
        IS(epoll_ctl(set, EPOLL_CTL_DEL, ends[0], NULL), 0);
        pid_t pid = starts[i]();
        sleep_ms(200);
        IS(epoll_add(set, ends[0], 0), 0);
        IS(epoll_mod(set, ends[0], EPOLLOUT), 0);
        IS(ended(pid), 0);
        close(set), close(ends[0]), close(ends[1]);
    }
    say("each was told");
}
