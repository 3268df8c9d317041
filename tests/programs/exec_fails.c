// An exec that fails changes nothing: connections are carried and told of as before.
#include "check.h"

extern char **environ;

// Both registrations have the same data.
static void both(int set, int fd) {
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP, .data.u64 = 7};
    IS(epoll_ctl(set, EPOLL_CTL_ADD, fd, &ev), 0);
}

// What the set reports, as one.
static uint32_t told(int set, int ms) {
    struct epoll_event ev[4];
    int n = epoll_wait(set, ev, 4, ms);
    CHECK(n >= 0);
    uint32_t events = 0;
    for (int i = 0; i < n; i++) {
        CHECK(ev[i].data.u64 == 7);
        events |= ev[i].events;
    }
    return events;
}

// Bytes, and then the end: each is told of.
static void last_of(int set, const int ends[2]) {
    put_pattern(ends[0], 10, 1);
    IS(told(set, PATIENCE), EPOLLIN);
    get_pattern(ends[1], 10, 1);
    IS(shutdown(ends[0], SHUT_WR), 0);
    IS(told(set, PATIENCE), EPOLLIN | EPOLLRDHUP);
}

int main(void) {
    int a[2], b[2], set = epoll_create1(0);
    char *arguments[] = {"nothing", NULL};
    pair_here(a), pair_here(b);
    both(set, a[1]), both(set, b[1]);
    IS(told(set, 20), 0);
    FAILS(execve("/nowhere/nothing", arguments, environ), ENOENT);
    FAILS(execv("/nowhere/nothing", arguments), ENOENT);
    FAILS(execvp("/nowhere/nothing", arguments), ENOENT);
    FAILS(execvp("ginnel-no-such-program", arguments), ENOENT);
    FAILS(execlp("ginnel-no-such-program", "nothing", NULL), ENOENT);
    IS(posix_spawnp(&(pid_t){0}, "ginnel-no-such-program", NULL, NULL, arguments, environ), ENOENT);
    IS(told(set, 20), 0);
    warm_pair(a[0], a[1]);
    for (int i = 0; i < 100; i++) put_pattern(a[0], 1000, i), get_pattern(a[1], 1000, i);
    last_of(set, b);
    say("three have failed");
    IS(epoll_ctl(set, EPOLL_CTL_DEL, b[1], NULL), 0);
    FAILS(execl("/nowhere/nothing", "nothing", NULL), ENOENT);
    sleep_ms(1200);  // longer than an exec is waited for
    last_of(set, a);
    say("and a fourth");
}
