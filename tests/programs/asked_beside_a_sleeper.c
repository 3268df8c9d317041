// A thread sleeps on an epoll set, or on a set around it, while another one asks for the set again and again (poll with no time): whatever comes wakes the sleeper.
#include "check.h"
#include <stdatomic.h>

enum { ROUNDS_EACH = 40 };

static int inner, ends[2];
static atomic_bool over;

static void *ask(void *unused) {
    while (!over) polled(inner, POLLIN, 0);
    return unused;
}

static void *speak(void *unused) {
    usleep(300);
    put_all(ends[1], "x", 1);
    return unused;
}

static void woken(uint32_t events, bool from_outside) {
    pthread_t asker, speaker;
    int outer = epoll_create1(0);
    inner = epoll_create1(0), over = false;
    IS(epoll_add(outer, inner, EPOLLIN), 0);
    IS(epoll_add(inner, ends[0], events), 0);
    IS(pthread_create(&asker, NULL, ask, NULL), 0);
    for (int i = 0; i < ROUNDS_EACH; i++) {
        IS(pthread_create(&speaker, NULL, speak, NULL), 0);
        if (from_outside) IS(epolled(outer, inner, PATIENCE), EPOLLIN);
        IS(epolled(inner, ends[0], PATIENCE), EPOLLIN);
        IS(pthread_join(speaker, NULL), 0);
        get_all(ends[0], &(char){0}, 1);
        if (events & EPOLLONESHOT) IS(epoll_mod(inner, ends[0], events), 0);
    }
    over = true;
    IS(pthread_join(asker, NULL), 0);
    close(inner), close(outer);
}

int main(void) {
    uint32_t kinds[] = {EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT};
    pair_here(ends);
    for (int i = 0; i < 6; i++) woken(kinds[i / 2], i % 2);
    say("woken each time");
}
