// An inner epoll set whose registrations are told of once (EPOLLONESHOT, EPOLLET), and that is asked for from outside: asking takes nothing away, and what becomes of
// the registration afterwards holds.
#include "check.h"

enum { ONCE = EPOLLIN | EPOLLONESHOT, EDGE = EPOLLIN | EPOLLET };

static int inner, outer, ends[2];

static void *speak(void *fd) {
    sleep_ms(50);
    put_pattern(*(int *)fd, 10, 1);
    return NULL;
}

// The outer set is slept on, and told of the inner one.
static void told_outside(int speaker) {
    pthread_t thread;
    IS(epolled(outer, inner, 5), 0);
    IS(pthread_create(&thread, NULL, speak, &speaker), 0);
    IS(epolled(outer, inner, PATIENCE), EPOLLIN);
    IS(pthread_join(thread, NULL), 0);
}

static void begin(void) {
    inner = epoll_create1(0), outer = epoll_create1(0);
    pair_here(ends);
    IS(epoll_add(outer, inner, EPOLLIN), 0);
}

static void end(void) {
    for (int i = 0; i < 2; i++) close(ends[i]);
    close(inner), close(outer);
}

static void drained_meanwhile(uint32_t events) {
    begin();
    IS(epoll_add(inner, ends[0], events), 0);
    told_outside(ends[1]);
    get_pattern(ends[0], 10, 1);
    IS(polled(inner, POLLIN, 0), 0);
    IS(epolled(inner, ends[0], 5), 0);
    put_pattern(ends[1], 10, 2);
    IS(epolled(inner, ends[0], PATIENCE), EPOLLIN);
    end();
}

static void armed_meanwhile(void) {
    struct epoll_event event;
    begin();
    IS(epoll_add(inner, ends[0], ONCE), 0);
    told_outside(ends[1]);
    IS(epoll_mod(inner, ends[0], ONCE), 0);
    IS(epoll_wait(inner, &event, 1, PATIENCE), 1);
    IS(epoll_wait(inner, &event, 1, 20), 0);
    end();
}

static void changed_meanwhile(uint32_t events) {
    begin();
    IS(epoll_add(inner, ends[0], events), 0);
    told_outside(ends[1]);
    IS(epoll_mod(inner, ends[0], EPOLLRDHUP), 0);
    IS(epolled(inner, ends[0], 20), 0);
    end();
}

static void removed_meanwhile(uint32_t events) {
    begin();
    IS(epoll_add(inner, ends[0], events), 0);
    told_outside(ends[1]);
    IS(epoll_ctl(inner, EPOLL_CTL_DEL, ends[0], NULL), 0);
    IS(epolled(inner, ends[0], 20), 0);
    end();
}

// Two registrations with the same data, of which the second has something to tell.
static void with_the_same_data(uint32_t events) {
    int others[2];
    struct epoll_event event = {.events = events, .data.u64 = 0}, got[4];
    begin();
    pair_here(others);
    IS(epoll_ctl(inner, EPOLL_CTL_ADD, ends[0], &event), 0);
    IS(epoll_ctl(inner, EPOLL_CTL_ADD, others[0], &event), 0);
    told_outside(others[1]);
    IS(epoll_wait(inner, got, 4, PATIENCE), 1);
    IS(epoll_wait(inner, got, 4, 20), 0);
    for (int i = 0; i < 2; i++) close(others[i]);
    end();
}

// The inner set itself is told of once: what is for the shim alone does not use that up.
static void told_once(void) {
    begin();
    IS(epoll_mod(outer, inner, EPOLLIN | EPOLLONESHOT), 0);
    IS(epoll_add(inner, ends[0], EPOLLIN), 0);
    for (int i = 0; i < 20; i++) {
        told_outside(ends[1]);
        get_pattern(ends[0], 10, 1);
        IS(epoll_mod(outer, inner, EPOLLIN | EPOLLONESHOT), 0);
    }
    end();
}

int main(void) {
    uint32_t both[] = {ONCE, EDGE};
    for (int i = 0; i < 2; i++) {
        drained_meanwhile(both[i]);
        changed_meanwhile(both[i]);
        removed_meanwhile(both[i]);
        with_the_same_data(both[i]);
    }
    armed_meanwhile();
    told_once();
    say("asking took nothing away");
}
