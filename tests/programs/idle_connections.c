// 1000 connections that have been used lie idle, then all are used again.
#include "check.h"

enum { MANY = 1000 };

int main(void) {
    static int a[MANY], b[MANY];
    struct sockaddr_in at;
    struct rlimit files = {4096, 4096};
    struct rlimit now;
    IS(getrlimit(RLIMIT_NOFILE, &now), 0);
    if (now.rlim_cur < 4096) CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    int listener = listen_on(&at), set = epoll_create1(0);
    for (int i = 0; i < MANY; i++) {
        a[i] = connect_to(&at), b[i] = accept_from(listener);
        for (int j = 0; j < 12; j++) put_pattern(a[i], 16, j), get_pattern(b[i], 16, j), put_pattern(b[i], 16, j), get_pattern(a[i], 16, j);
        IS(epoll_add(set, b[i], EPOLLIN | (i % 2 ? EPOLLET : 0u)), 0);
    }
    struct epoll_event ev[MANY];
    int n;
    do n = epoll_wait(set, ev, MANY, 0);
    while (n > 0 && (ev[0].events & EPOLLIN) == 0);
    IS(n, 0);
    struct pollfd *all = calloc(MANY, sizeof *all);
    for (int i = 0; i < MANY; i++) all[i] = (struct pollfd){b[i], POLLIN, 0};
    IS(poll(all, MANY, 500), 0);
    for (int i = 0; i < MANY; i++) put_pattern(a[i], 100, i);
    int seen = 0;
    for (int64_t end = now_ms() + PATIENCE; seen < MANY && now_ms() < end;) {
        n = epoll_wait(set, ev, 100, 1000);
        for (int i = 0; i < n; i++) {
            int k = 0;
            while (b[k] != ev[i].data.fd) k++;
            get_pattern(b[k], 100, k);
            seen++;
        }
    }
    IS(seen, MANY);
    IS(epoll_wait(set, ev, 100, 0), 0);
    for (int i = 0; i < MANY; i++) close(a[i]), close(b[i]);
    say("%d connections", MANY);
}
