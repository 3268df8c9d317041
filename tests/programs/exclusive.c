// EPOLLEXCLUSIVE: of several threads that wait in their own sets at least one is woken, each time.
#include "check.h"

enum { THREADS = 3, MESSAGES = 300 };
static int fd, sets[THREADS];
static int taken;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void peer(int to) {
    for (int i = 0; i < MESSAGES; i++) put_pattern(to, 10, i), hear();
}

static void *wait_and_take(void *p) {
    int set = *(int *)p;
    for (;;) {
        uint32_t events = epolled(set, fd, 200);
        CHECK(!(events & ~(uint32_t)EPOLLIN));
        pthread_mutex_lock(&lock);
        if (taken == MESSAGES) break;
        uint8_t text[11];
        ssize_t n = recv(fd, text, 11, MSG_DONTWAIT);
        CHECK(n == 10 || (n == -1 && errno == EAGAIN));
        if (n == 10) same(text, 0, 10, taken++), tell();
        pthread_mutex_unlock(&lock);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    fd = with_peer(peer);
    for (int i = 0; i < THREADS; i++) {
        sets[i] = epoll_create1(0);
        IS(epoll_add(sets[i], fd, EPOLLIN | EPOLLEXCLUSIVE), 0);
        FAILS(epoll_mod(sets[i], fd, EPOLLIN), EINVAL);
        IS(pthread_create(&threads[i], NULL, wait_and_take, &sets[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    peer_ends();
    say("all %d taken", MESSAGES);
}
