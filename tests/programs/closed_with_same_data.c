// Registrations that all have the same data, of connections that a child has from a fork before they were used: those whose
// number is closed here are told of as long as the child has them.
#include "check.h"

enum { ALL = 40 };

int main(void) {
    int warm[2], a[ALL], b[ALL], life[2], set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7}, told[ALL + 1];
    struct sockaddr_in at;
    int listener = listen_on(&at);
    pair_here(warm);
    for (int i = 0; i < ALL; i++) {
        a[i] = connect_to(&at), b[i] = accept_from(listener);
        IS(epoll_ctl(set, EPOLL_CTL_ADD, b[i], &event), 0);
    }
    IS(pipe(life), 0);
    pid_t child = fork();
    if (child == 0) {
        close(life[1]);
        _exit((int)read(life[0], &(char){0}, 1));
    }
    for (int i = 0; i < ALL; i++) {
        put_all(a[i], "x", 1), get_all(b[i], &(char){0}, 1);
        if (i % 2) close(b[i]);
    }
    for (int i = 0; i < ALL; i++) put_all(a[i], "y", 1);
    for (int i = 0; i < ALL; i++) {
        if (i % 2 == 0) CHECK(polled(b[i], POLLIN, PATIENCE) == POLLIN);
    }
    int n = epoll_wait(set, told, ALL + 1, PATIENCE);
    for (int64_t end = now_ms() + PATIENCE; n < ALL && now_ms() < end;) n = epoll_wait(set, told, ALL + 1, 10);
    say("%d while the child has them", n);
    close(life[1]);
    IS(ended(child), 0);
    say("%d after it", epoll_wait(set, told, ALL + 1, 0));
}
