// What rang a thread that slept on a set is no news to others who have the set from then on: a child, a poll of the set, a set around it. Neither are they told of it, nor kept awake by it.
#include "check.h"

enum way { FORK, POLL, NEST, WAYS };
enum { ROUNDS_EACH = 4, SIZE = 10, QUIET_MS = 200 };

static void peer(int fd) {
    for (int i = 0; i < WAYS * ROUNDS_EACH * 2; i++) {
        hear();
        sleep_ms(5); // the other sleeps by now
        put_pattern(fd, SIZE, i);
    }
}

static void stays_quiet(int set, int fd) {
    int64_t before = clock_ms(CLOCK_THREAD_CPUTIME_ID);
    IS(epolled(set, fd, QUIET_MS), 0);
    CHECK(clock_ms(CLOCK_THREAD_CPUTIME_ID) - before < QUIET_MS / 2);
}

static void lend(enum way way, int set, int fd) {
    switch (way) {
    case FORK: {
        pid_t child = fork();
        if (child == 0) {
            stays_quiet(set, fd);
            exit(0);
        }
        IS(ended(child), 0);
        break;
    }
    case POLL: IS(polled(set, POLLIN, 0), 0); break;
    default: {
        int around = epoll_create1(0);
        IS(epoll_add(around, set, EPOLLIN), 0);
        stays_quiet(around, set);
        close(around);
    }
    }
}

int main(void) {
    int fd = with_peer(peer), n = 0;
    for (enum way way = 0; way < WAYS; way++) {
        int set = epoll_create1(0);
        IS(epoll_add(set, fd, EPOLLIN), 0);
        for (int i = 0; i < ROUNDS_EACH; i++) {
            for (int twice = 0; twice < 2; twice++) {
                tell();
                IS(epolled(set, fd, PATIENCE), EPOLLIN);
                get_pattern(fd, SIZE, n++);
            }
            lend(way, set, fd);
        }
        close(set);
    }
    peer_ends();
    say("what rang a sleeper is no news to others");
}
