// A fork takes no time to speak of while other threads change registrations as fast as they can.
#include "check.h"

enum { THREADS = 3, FORKS = 20 };

static volatile bool stop;

static void *busy(void *unused) {
    (void)unused;
    int ends[2], set = epoll_create1(EPOLL_CLOEXEC);
    pair_here(ends);
    IS(epoll_add(set, ends[0], EPOLLIN), 0);
    while (!stop) {
        IS(epoll_mod(set, ends[0], EPOLLIN | EPOLLOUT), 0);
        IS(epoll_mod(set, ends[0], EPOLLIN), 0);
    }
    return NULL;
}

int main(void) {
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) IS(pthread_create(&thread[i], NULL, busy, NULL), 0);
    sleep_ms(200);
    int64_t begin = now_ms();
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) _exit(0);
        IS(ended(child), 0);
    }
    // It took seconds, each time.
    CHECK(now_ms() - begin < PATIENCE);
    stop = true;
    for (int i = 0; i < THREADS; i++) IS(pthread_join(thread[i], NULL), 0);
    say("forked %d times", FORKS);
}
