// What rang a thread that slept on a set is no news to others who have the set from then on: a child, a poll of the set (also once the connection has left it), a set around it. Neither are
// they told of it, nor kept awake by it.
#include "check.h"

enum way { GONE, POLL, NEST, FORK, WAYS };
enum { ROUNDS_EACH = 4, SIZE = 10, QUIET_MS = 200 };

static void peer(int fd) {
    for (int i = 0; i < ROUNDS_EACH * 2; i++) {
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
    case GONE:
        IS(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL), 0);
        IS(polled(set, POLLIN, 20), 0);
        IS(epoll_add(set, fd, EPOLLIN | EPOLLET), 0);
        break;
    default: {
        int around = epoll_create1(0);
        IS(epoll_add(around, set, EPOLLIN), 0);
        stays_quiet(around, set);
        close(around);
    }
    }
}

int main(void) {
    // Each with a connection of its own: what others may have too is woken by the kernel from then on.
    for (enum way way = 0; way < WAYS; way++) {
        int fd = with_peer(peer), set = epoll_create1(0), n = 0;
        IS(epoll_add(set, fd, way == GONE ? EPOLLIN | EPOLLET : EPOLLIN), 0);
        for (int i = 0; i < ROUNDS_EACH; i++) {
            for (int twice = 0; twice < 2; twice++) {
                tell();
                IS(epolled(set, fd, PATIENCE), EPOLLIN);
                get_pattern(fd, SIZE, n++);
            }
            lend(way, set, fd);
        }
        close(set), close(fd);
        peer_ends();
    }
    say("what rang a sleeper is no news to others");
}
