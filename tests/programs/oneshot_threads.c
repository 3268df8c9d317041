// Three threads on one set with EPOLLONESHOT: every shot can be loaded again, no byte waits for ever, and nobody is told of what
// another thread was told of; also beside a process that only has the socket and the set.
#include "check.h"
#include <stdatomic.h>

enum { PAIRS = 3, THREADS = 3, MESSAGES = 3000 };
static int set, ends[PAIRS][2];
static atomic_long came[PAIRS];
static atomic_bool over;

static void *serve(void *arg) {
    uint32_t mode = *(uint32_t *)arg;
    while (!over) {
        struct epoll_event ev;
        uint8_t text[64];
        if (epoll_wait(set, &ev, 1, 100) != 1) continue;
        int k = ev.data.fd;
        for (ssize_t n; (n = recv(ends[k][0], text, sizeof text, 0)) > 0;) came[k] += n;
        ev = (struct epoll_event){.events = mode, .data.fd = k};
        IS(epoll_ctl(set, EPOLL_CTL_MOD, ends[k][0], &ev), 0);
    }
    return NULL;
}

static void *feed(void *arg) {
    long k = (long)arg, sent = came[k];
    for (int i = 0; i < MESSAGES; i++) {
        put_all(ends[k][1], "0123456789", 10);
        sent += 10;
        if (i % 5) continue;
        for (int64_t end = now_ms() + PATIENCE; came[k] != sent; usleep(20)) CHECK(now_ms() < end);
    }
    for (int64_t end = now_ms() + PATIENCE; came[k] != sent; usleep(20)) CHECK(now_ms() < end);
    return NULL;
}

static atomic_int owners;
static atomic_long shots;

static void *serve_alone(void *arg) {
    static char much[1 << 16];
    uint32_t mode = *(uint32_t *)arg;
    while (!over) {
        struct epoll_event ev;
        if (epoll_wait(set, &ev, 1, 100) != 1) continue;
        CHECK(atomic_fetch_add(&owners, 1) == 0);
        shots++;
        while (recv(ends[0][0], (char[4096]){0}, 4096, MSG_DONTWAIT) > 0) {}
        while (send(ends[0][0], much, sizeof much, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {}
        if (shots % 7 == 0) usleep(50);
        atomic_fetch_sub(&owners, 1);
        ev = (struct epoll_event){.events = mode};
        IS(epoll_ctl(set, EPOLL_CTL_MOD, ends[0][0], &ev), 0);
    }
    return NULL;
}

static void told_to_one(uint32_t mode, bool beside_a_child) {
    pthread_t threads[THREADS];
    struct epoll_event ev = {.events = mode};
    over = false, shots = 0;
    set = epoll_create1(0);
    IS(epoll_ctl(set, EPOLL_CTL_ADD, ends[0][0], &ev), 0);
    pid_t child = beside_a_child ? fork() : -1;
    if (child == 0) pause();
    for (int i = 0; i < THREADS; i++) IS(pthread_create(&threads[i], NULL, serve_alone, &mode), 0);
    for (int64_t end = now_ms() + 500; now_ms() < end || (shots < 20 && now_ms() < end + PATIENCE); usleep(30)) {
        send(ends[0][1], "0123456789", 10, MSG_DONTWAIT);
        while (recv(ends[0][1], (char[4096]){0}, 4096, MSG_DONTWAIT) > 0) {}
    }
    over = true;
    for (int i = 0; i < THREADS; i++) IS(pthread_join(threads[i], NULL), 0);
    CHECK(shots >= 20);
    if (beside_a_child) {
        IS(kill(child, SIGKILL), 0);
        ended(child);
    }
    close(set);
}

int main(void) {
    uint32_t modes[] = {EPOLLIN | EPOLLONESHOT, EPOLLIN | EPOLLOUT | EPOLLET | EPOLLONESHOT};
    for (int k = 0; k < PAIRS; k++) pair_here(ends[k]), nonblocking(ends[k][0]);
    for (int m = 0; m < 2; m++) {
        pthread_t threads[THREADS], feeders[PAIRS];
        over = false;
        set = epoll_create1(0);
        for (int k = 0; k < PAIRS; k++) {
            struct epoll_event ev = {.events = modes[m], .data.fd = k};
            IS(epoll_ctl(set, EPOLL_CTL_ADD, ends[k][0], &ev), 0);
        }
        for (int i = 0; i < THREADS; i++) IS(pthread_create(&threads[i], NULL, serve, &modes[m]), 0);
        for (long k = 0; k < PAIRS; k++) IS(pthread_create(&feeders[k], NULL, feed, (void *)k), 0);
        for (int k = 0; k < PAIRS; k++) IS(pthread_join(feeders[k], NULL), 0);
        over = true;
        for (int i = 0; i < THREADS; i++) IS(pthread_join(threads[i], NULL), 0);
        // A shot that was fired leaves the socket in the set.
        struct epoll_event ev;
        put_all(ends[0][1], "x", 1);
        do IS(epoll_wait(set, &ev, 1, PATIENCE), 1);
        while (ev.data.fd != 0 || !(ev.events & EPOLLIN));
        FAILS(epoll_add(set, ends[0][0], EPOLLIN), EEXIST);
        get_all(ends[0][0], (char[1]){0}, 1);
        close(set);
    }
    for (int i = 0; i < 4; i++) told_to_one(EPOLLIN | EPOLLOUT | EPOLLONESHOT | (i % 2 ? EPOLLET : 0u), i / 2);
    say("all of it came, once");
}
