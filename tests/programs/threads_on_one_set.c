// Two threads wait on one epoll set. While one works on what it was told of, the other is told of what comes next.
#include "check.h"
#include <semaphore.h>
#include <stdatomic.h>

enum { ROUNDS_HERE = 20, SIZE = 10 };
static int set, fd;
static atomic_int got;
static sem_t go_on;

static void peer(int to) {
    for (int i = 0; i < 2 * ROUNDS_HERE; i++) hear(), put_pattern(to, SIZE, 0);
}

static void *waiting(void *unused) {
    uint8_t text[SIZE];
    struct epoll_event ev;
    for (;;) {
        int n = epoll_wait(set, &ev, 1, -1);
        CHECK(n == 1);
        ssize_t came = recv(fd, text, SIZE, MSG_DONTWAIT);
        if (came < 0) {
            CHECK(errno == EAGAIN);
            continue;
        }
        if (came == 0) return unused;
        IS(came, SIZE);
        same(text, 0, SIZE, 0);
        got++;
        while (sem_wait(&go_on)) {}
    }
}

static void until(int n) {
    for (int64_t end = now_ms() + PATIENCE; got != n; sleep_ms(1)) CHECK(now_ms() < end);
}

int main(void) {
    pthread_t threads[2];
    fd = with_peer(peer);
    set = epoll_create1(0);
    nonblocking(fd);
    IS(sem_init(&go_on, 0, 0), 0);
    IS(epoll_add(set, fd, EPOLLIN), 0);
    for (int i = 0; i < 2; i++) IS(pthread_create(&threads[i], NULL, waiting, NULL), 0);
    for (int i = 0; i < ROUNDS_HERE; i++) {
        sleep_ms(i % 3);
        tell();
        until(2 * i + 1);
        tell();
        until(2 * i + 2);
        sem_post(&go_on), sem_post(&go_on);
    }
    say("each was told");
    close(side);
    for (int i = 0; i < 2; i++) IS(pthread_join(threads[i], NULL), 0);
    IS(ended(other), 0);
}
