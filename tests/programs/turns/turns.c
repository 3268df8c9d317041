// Connections whose sleepers change: threads of a pool that take turns at one connection, as behind
// a proxy, and epoll sets from which connections are taken and put back for each request. Each
// sleeper is the only one of its time, and is woken as any other.
#include "../include/check.h"
#include <sys/epoll.h>

enum { THREADS = 4, TURNS = 2000, SIZE = 64 };

static void answer(int fd) {
    for (int i = 0; i < TURNS; i++) get_pattern(fd, SIZE, i), put_pattern(fd, SIZE, i + 1);
}

enum { CONNECTIONS = 3 };

static struct {
    pthread_mutex_t turn;
    int ends[2], taken;
} pooled[CONNECTIONS];

static void *answers(void *which) {
    answer(pooled[(intptr_t)which].ends[1]);
    return NULL;
}

// Some ask poll, some recv, and find their answer at once, sleep, or are about to when it comes.
static void *asks(void *which) {
    for (int round = 0, idle = 0; idle < CONNECTIONS; round++) {
        int at = round % CONNECTIONS;
        pthread_mutex_lock(&pooled[at].turn);
        int i = pooled[at].taken, fd = pooled[at].ends[0];
        if (i < TURNS) {
            pooled[at].taken++;
            put_pattern(fd, SIZE, i);
            for (volatile int wait = i * 37 % 5000; wait > 0; wait--) {}
            struct pollfd p = {.fd = fd, .events = POLLIN};
            if ((intptr_t)which % 2) IS(poll(&p, 1, PATIENCE), 1);
            get_pattern(fd, SIZE, i + 1);
            idle = 0;
        } else {
            idle++;
        }
        pthread_mutex_unlock(&pooled[at].turn);
    }
    return NULL;
}

static void pool(void) {
    pthread_t asking[THREADS], answering[CONNECTIONS];
    for (intptr_t i = 0; i < CONNECTIONS; i++) {
        IS(pthread_mutex_init(&pooled[i].turn, NULL), 0);
        pair_here(pooled[i].ends);
        IS(pthread_create(&answering[i], NULL, answers, (void *)i), 0);
    }
    for (intptr_t i = 0; i < THREADS; i++) IS(pthread_create(&asking[i], NULL, asks, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) joined(asking[i]);
    for (int i = 0; i < CONNECTIONS; i++) joined(answering[i]);
}

// A second connection is put in and out, too, so that neither has the place that it had.
static void set(void) {
    int fd = with_peer(answer), here[2], epfd = epoll_create1(0);
    pair_here(here);
    CHECK(epfd >= 0);
    for (int i = 0; i < TURNS; i++) {
        struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd}, other_ev = {.events = EPOLLIN, .data.fd = here[0]}, got;
        IS(epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev), 0);
        IS(epoll_ctl(epfd, EPOLL_CTL_ADD, here[0], &other_ev), 0);
        put_pattern(fd, SIZE, i);
        IS(epoll_wait(epfd, &got, 1, PATIENCE), 1);
        IS(got.data.fd, fd);
        get_pattern(fd, SIZE, i + 1);
        IS(epoll_ctl(epfd, EPOLL_CTL_DEL, fd, NULL), 0);
        IS(epoll_ctl(epfd, EPOLL_CTL_DEL, here[0], NULL), 0);
        IS(epoll_wait(epfd, &got, 1, 0), 0);
    }
    peer_ends();
    close(fd), close(here[0]), close(here[1]), close(epfd);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "set")) set();
    else pool();
    say("every turn was served");
}
