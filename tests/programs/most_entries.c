// poll with as many entries as the process may have descriptors.
#include "check.h"

enum { MOST = 100, MESSAGES = 60, SIZE = 500 };

static void ask(const struct sockaddr_in *at) {
    int fd = connect_to(at);
    for (int i = 0; i < MESSAGES; i++) {
        sleep_ms(1);
        put_pattern(fd, SIZE, i);
        get_pattern(fd, SIZE, i);
    }
    exit(0);
}

int main(void) {
    struct sockaddr_in at;
    int listener = listen_on(&at);
    pid_t peer = fork();
    if (peer == 0) ask(&at);
    int fd = accept_from(listener);
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
    close(fd);
    IS(ended(peer), 0);
    say("%d messages beside %d entries", MESSAGES, MOST);
}
