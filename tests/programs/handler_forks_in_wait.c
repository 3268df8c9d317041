// A signal handler forks while its thread waits for an epoll set. In the child a thread that sleeps on the set, which is two processes' now, is told of what another thread adds.
#include "check.h"
#include <stdatomic.h>

static int set, added;
static volatile pid_t child = -1;
static _Atomic bool told;

static void forks(int signal) {
    (void)signal;
    child = fork();
}

// Bytes that nobody has read lie in the connection before it is added.
static void sends_when_asked(int fd) {
    hear();
    put_pattern(fd, 16, 1);
    tell();
    hear();
}

static void *waits(void *none) {
    struct epoll_event events[4];
    while (!told) {
        int n = epoll_wait(set, events, 4, -1);
        CHECK(n > 0);
        for (int i = 0; i < n; i++) told |= events[i].data.fd == added;
    }
    return none;
}

int main(void) {
    struct sockaddr_in at;
    int bell = eventfd(0, EFD_NONBLOCK);
    struct epoll_event events[4];
    set = epoll_create1(0);
    CHECK(set >= 0 && bell >= 0);
    IS(epoll_add(set, bell, EPOLLIN), 0);
    // A socket is what makes the set of interest, and a connection the process.
    IS(epoll_add(set, listen_on(&at), EPOLLIN), 0);
    int ends[2];
    pair_here(ends);
    IS(close(ends[0]), 0);
    IS(close(ends[1]), 0);
    for (int i = 0; i < 4; i++) {
        uint64_t one = 1;
        IS(write(bell, &one, sizeof one), sizeof one);
        IS(epoll_wait(set, events, 4, PATIENCE), 1);
        IS(read(bell, &one, sizeof one), sizeof one);
    }
    struct sigaction action = {.sa_handler = forks};
    IS(sigaction(SIGALRM, &action, NULL), 0);
    ualarm(100000, 0);
    FAILS(epoll_wait(set, events, 4, -1), EINTR);
    CHECK(child >= 0);
    if (child > 0) {
        IS(ended(child), 0);
        say("told in the child");
        return 0;
    }
    pthread_t sleeper;
    IS(pthread_create(&sleeper, NULL, waits, NULL), 0);
    added = with_peer(sends_when_asked);
    tell();
    hear();
    sleep_ms(100);
    IS(epoll_add(set, added, EPOLLIN), 0);
    joined(sleeper);
    get_pattern(added, 16, 1);
    tell();
    peer_ends();
    return 0;
}
