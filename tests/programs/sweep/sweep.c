// Many connections at once, one word of each of whose shared memory somebody spoils: `sweep recv|poll|epoll|send COUNT`. Every call comes back in its time, and who has nothing to do
// sleeps. What it says does not depend on what becomes of the connections.
#include "check.h"

enum { LIMIT = 1000, STUCK = 10000, MOST = 256 };

static int ends[MOST][2], count;
static const char *mode;

static void in_time(int64_t since, const char *what, int i) {
    if (now_ms() - since > STUCK) {
        fprintf(stderr, "connection %d: %s took %ld ms\n", i, what, now_ms() - since);
        _exit(3);
    }
}

static void limits(int fd) {
    struct timeval limit = {.tv_sec = LIMIT / 1000};
    IS(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    IS(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit), 0);
}

// One call after the other until the time is over or the connection is.
static void *waits(void *arg) {
    int i = (int)(intptr_t)arg, fd = ends[i][0];
    static __thread char buffer[100000];
    for (int64_t end = now_ms() + LIMIT; now_ms() < end;) {
        int64_t since = now_ms();
        if (!strcmp(mode, "poll")) {
            struct pollfd p = {.fd = fd, .events = POLLIN | POLLRDHUP};
            int n = poll(&p, 1, LIMIT);
            in_time(since, "poll", i);
            if (n <= 0) break;
        }
        ssize_t n = !strcmp(mode, "send") ? send(fd, buffer, sizeof buffer, MSG_NOSIGNAL)
                  : !strcmp(mode, "poll") ? recv(fd, buffer, sizeof buffer, MSG_DONTWAIT)
                                          : recv(fd, buffer, sizeof buffer, 0);
        CHECK(n <= (ssize_t)sizeof buffer);
        in_time(since, mode, i);
        if (n <= 0 && errno != EAGAIN) break;
    }
    return NULL;
}

static void waits_for_all(void) {
    static char buffer[100000];
    int set = epoll_create1(0);
    for (int i = 0; i < count; i++) IS(epoll_add(set, ends[i][0], i % 2 ? EPOLLIN : EPOLLIN | EPOLLOUT | EPOLLET), 0);
    for (int64_t end = now_ms() + LIMIT; now_ms() < end;) {
        struct epoll_event events[16];
        int64_t since = now_ms();
        int n = epoll_wait(set, events, 16, (int)(end - since));
        in_time(since, "epoll_wait", -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            since = now_ms();
            ssize_t got = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
            CHECK(got <= (ssize_t)sizeof buffer);
            in_time(since, "recv", fd);
            if (got == 0 || (got < 0 && errno != EAGAIN)) IS(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL), 0);
        }
    }
    close(set);
}

int main(int argc, char **argv) {
    CHECK(argc == 3 && (count = atoi(argv[2])) <= MOST);
    mode = argv[1];
    for (int i = 0; i < count; i++) {
        pair_here(ends[i]), limits(ends[i][0]), limits(ends[i][1]);
        // Several times what a ring holds goes by, so that a place of before is no place of now.
        for (int j = 0; j < 20; j++) put_pattern(ends[i][0], 3500, j), get_pattern(ends[i][1], 3500, j);
    }
    sigset_t usr1;
    int got;
    sigemptyset(&usr1), sigaddset(&usr1, SIGUSR1);
    IS(pthread_sigmask(SIG_BLOCK, &usr1, NULL), 0);
    say("ready");
    IS(sigwait(&usr1, &got), 0);
    int64_t used = clock_ms(CLOCK_PROCESS_CPUTIME_ID), since = now_ms();
    pthread_t threads[MOST];
    if (!strcmp(mode, "epoll")) waits_for_all();
    else {
        for (int i = 0; i < count; i++) IS(pthread_create(&threads[i], NULL, waits, (void *)(intptr_t)i), 0);
        for (int i = 0; i < count; i++) IS(pthread_join(threads[i], NULL), 0);
    }
    used = clock_ms(CLOCK_PROCESS_CPUTIME_ID) - used, since = now_ms() - since;
    if (used > since / 2) {
        fprintf(stderr, "%ld ms of the processor's in %ld ms\n", used, since);
        return 4;
    }
    for (int i = 0; i < 2 * count; i++) {
        int64_t begin = now_ms();
        close(ends[i / 2][i % 2]);
        in_time(begin, "close", i / 2);
    }
    say("done");
}
