// poll with as many entries as the process may have descriptors, select with more, and calls that wait where it may have one, which take no processor time.
#include "check.h"

enum { MOST = 100, MESSAGES = 60, ROUNDS_OF = 3, SIZE = 500, QUIET = 800 };

static void asks(int fd) {
    for (int i = 0; i < MESSAGES * ROUNDS_OF; i++) {
        sleep_ms(1);
        put_pattern(fd, SIZE, i);
        get_pattern(fd, SIZE, i);
    }
    sleep_ms(QUIET);
    put_pattern(fd, SIZE, 0);
}

int main(void) {
    int fd = with_peer(asks);
    struct rlimit limit;
    IS(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = MOST;
    IS(setrlimit(RLIMIT_NOFILE, &limit), 0);
    struct pollfd entries[MOST + 1];
    for (int i = 0; i <= MOST; i++) entries[i] = (struct pollfd){.fd = i == 7 ? fd : -1, .events = POLLIN};
    CHECK(poll(entries, MOST + 1, 1) < 0 && errno == EINVAL);
    for (int i = 0; i < MESSAGES; i++) {
        IS(poll(entries, MOST, PATIENCE), 1);
        CHECK(entries[7].revents & POLLIN);
        get_pattern(fd, SIZE, i);
        put_pattern(fd, SIZE, i);
    }
    struct rlimit less = limit;
    int others[60], taken = 0, quiet = eventfd(0, 0);
    while (taken < 60 && (others[taken] = dup(quiet)) >= 0) taken++;
    CHECK(taken > 50);
    less.rlim_cur = 40;
    IS(setrlimit(RLIMIT_NOFILE, &less), 0);
    for (int i = MESSAGES; i < 2 * MESSAGES; i++) {
        fd_set readable;
        FD_ZERO(&readable);
        FD_SET(fd, &readable);
        for (int k = 0; k < taken; k++) FD_SET(others[k], &readable);
        struct timeval patience = {.tv_sec = PATIENCE / 1000};
        IS(select(others[taken - 1] + 1, &readable, NULL, NULL, &patience), 1);
        CHECK(FD_ISSET(fd, &readable));
        get_pattern(fd, SIZE, i);
        put_pattern(fd, SIZE, i);
    }
    less.rlim_cur = 1;
    IS(setrlimit(RLIMIT_NOFILE, &less), 0);
    for (int i = 2 * MESSAGES; i < ROUNDS_OF * MESSAGES; i++) {
        IS(poll(&(struct pollfd){fd, POLLIN, 0}, 1, PATIENCE), 1);
        get_pattern(fd, SIZE, i);
        put_pattern(fd, SIZE, i);
    }
    int64_t before = clock_ms(CLOCK_THREAD_CPUTIME_ID);
    get_pattern(fd, SIZE, 0);
    CHECK(clock_ms(CLOCK_THREAD_CPUTIME_ID) - before < QUIET / 4);
    close(fd);
    peer_ends();
    say("%d messages beside %d entries", MESSAGES, MOST);
}
