// A server that has used up its descriptors serves on: a client that came last, and sleeps while it waits for answers, is woken all the same.
#include "check.h"

enum { MESSAGES = 100, SIZE = 700 };

static void ask(const struct sockaddr_in *at) {
    int fd = connect_to(at);
    struct timeval limit = {.tv_sec = PATIENCE / 1000};
    IS(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    for (int i = 0; i < MESSAGES; i++) put_pattern(fd, SIZE, i), get_pattern(fd, SIZE, i);
    exit(0);
}

static void answer(int fd) {
    char text[SIZE];
    for (int i = 0; i < MESSAGES; i++) {
        get_all(fd, text, sizeof text);
        sleep_ms(2);
        put_all(fd, text, sizeof text);
    }
    IS(read(fd, text, 1), 0);
    close(fd);
}

int main(void) {
    struct rlimit limit = {300, 300};
    IS(setrlimit(RLIMIT_NOFILE, &limit), 0);
    struct sockaddr_in at;
    int listener = listen_on(&at), taken = 0;
    pid_t first = fork();
    if (first == 0) ask(&at);
    answer(accept_from(listener));
    IS(ended(first), 0);
    pid_t second = fork();
    if (second == 0) ask(&at);
    int fd = accept_from(listener);
    while (dup(2) >= 0) taken++;
    CHECK(taken > 100 && errno == EMFILE);
    answer(fd);
    IS(ended(second), 0);
    say("%d messages by a process without a descriptor to spare", MESSAGES);
}
