// A thread polls a set that holds no connection yet. One that is added meanwhile, and already goes through rings, wakes it.
#include "check.h"

enum { ROUNDS_EACH = 6, SIZE = 10 };
static int set;

static void peer(int fd) {
    for (int i = 0; i < ROUNDS_EACH; i++) {
        hear();
        sleep_ms(30); // nothing is there yet when it is added
        put_pattern(fd, SIZE, i);
    }
}

static void *polls(void *unused) {
    (void)unused;
    return (void *)(intptr_t)polled(set, POLLIN, PATIENCE);
}

int main(void) {
    int fd = with_peer(peer), pipes[2];
    IS(pipe(pipes), 0);
    for (int i = 0; i < ROUNDS_EACH; i++) {
        pthread_t thread;
        set = epoll_create1(0);
        IS(epoll_add(set, pipes[0], EPOLLIN), 0);
        IS(pthread_create(&thread, NULL, polls, NULL), 0);
        sleep_ms(30); // it sleeps by now
        IS(epoll_add(set, fd, EPOLLIN), 0);
        tell();
        IS((int)(intptr_t)joined(thread), POLLIN);
        // It may wake as soon as the connection is there, before its bytes.
        IS(epolled(set, fd, PATIENCE), EPOLLIN);
        get_pattern(fd, SIZE, i);
        close(set);
    }
    peer_ends();
    say("a connection that is added wakes who polls the set");
}
