// What a call has moved already is what it returns: at a signal that restarts calls, at the time limit, at the end. And what may not touch the buffer, or another's descriptor.
#include "check.h"
#include <sys/sendfile.h>

static volatile int caught;

static void note(int signal) { (void)signal, caught = 1; }

static void alarm_in(int ms) {
    struct itimerval once = {.it_value = {ms / 1000, ms % 1000 * 1000}};
    caught = 0;
    IS(setitimer(ITIMER_REAL, &once, NULL), 0);
}

static void peer(int fd) {
    for (int i = 0; i < 3; i++) hear(), put_pattern(fd, 50, 1);
    hear();
    put_pattern(fd, 50, 1);
    IS(shutdown(fd, SHUT_WR), 0);
    hear();
}

static void *send_file(void *arg) {
    FILE *file = tmpfile();
    CHECK(file && ftruncate(fileno(file), 20000) == 0);
    off_t at = 0;
    for (size_t sent = 0; sent < 20000;) {
        ssize_t n = sendfile(*(int *)arg, fileno(file), &at, 20000 - sent);
        CHECK(n > 0);
        sent += (size_t)n;
    }
    fclose(file);
    return NULL;
}

static int taken;

static void *blocked(void *arg) {
    char c;
    taken = (int)recv(*(int *)arg, &c, 1, 0);
    return NULL;
}

int main(void) {
    struct sigaction restart = {.sa_handler = note, .sa_flags = SA_RESTART};
    struct timeval limit = {0, 300000}, none = {0, 0};
    uint8_t text[200] = {0}, *much = calloc(1, 64 << 20);
    int fd = with_peer(peer), ends[2], more[2];
    IS(sigaction(SIGALRM, &restart, NULL), 0);
    // All that is looked at stays: one message after the other adds up.
    tell(), when_readable(fd);
    alarm_in(200);
    IS(recv(fd, text, 100, MSG_WAITALL), 50);
    CHECK(caught);
    say("a signal ends MSG_WAITALL");
    tell(), when_readable(fd);
    alarm_in(200);
    IS(recv(fd, text, 100, MSG_WAITALL | MSG_PEEK), 50);
    CHECK(caught);
    IS(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    IS(recv(fd, text, 100, MSG_WAITALL | MSG_PEEK), 50);
    memset(text, 0xee, sizeof text);
    IS(recv(fd, text, 100, MSG_PEEK | MSG_TRUNC), 50);
    IS(recv(fd, NULL, 100, MSG_PEEK | MSG_TRUNC), 50);
    for (int i = 0; i < 100; i++) CHECK(text[i] == 0xee);
    get_pattern(fd, 50, 1);
    say("and a look that waits");
    tell(), when_readable(fd);
    int64_t before = now_ms();
    IS(recv(fd, text, 100, MSG_WAITALL), 50);
    CHECK(now_ms() - before < 5000);
    IS(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none), 0);
    tell(), when_readable(fd);
    IS(recv(fd, text, 100, MSG_WAITALL | MSG_PEEK), 50);
    tell();
    say("a limit, and the end");

    pair_here(ends);
    alarm_in(200);
    ssize_t sent = send(ends[0], much, 64 << 20, 0);
    CHECK(caught && sent > 0 && sent < 64 << 20);
    say("a signal ends a send");

    pthread_t thread;
    pthread_attr_t small;
    pair_here(more);
    IS(pthread_attr_init(&small), 0);
    IS(pthread_attr_setstacksize(&small, PTHREAD_STACK_MIN), 0);
    IS(pthread_create(&thread, &small, send_file, &more[0]), 0);
    for (size_t n = 0; n < 20000;) {
        ssize_t got = recv(more[1], much, 20000 - n, 0);
        CHECK(got > 0);
        n += (size_t)got;
    }
    IS(pthread_join(thread, NULL), 0);
    say("on a small stack");

    // A descriptor is closed under a receive, and its number is another connection's at once.
    int old = more[0], again[2];
    IS(pthread_create(&thread, NULL, blocked, &old), 0);
    sleep_ms(100);
    pair_here(again);
    IS(dup2(again[0], old), old);
    put_all(more[1], "x", 1);
    sleep_ms(100);
    warm_pair(again[0], again[1]);
    warm_pair(old, again[1]);
    close(more[1]);
    IS(pthread_join(thread, NULL), 0);
    warm_pair(old, again[1]);
    say("the other connection stands");
    peer_ends();
}
