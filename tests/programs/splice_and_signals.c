// splice waits for a pipe, into a socket and out of one, and a handler runs meanwhile: with SA_RESTART it goes on, without it
// says EINTR.
#include "check.h"

enum { FULL = 65536 };

static volatile int signals;
static void count(int signal) { signals += signal == SIGUSR1; }

static pthread_t waiter;
static int into[2], from[2];

// Interrupts the other thread, and ends its wait then.
static void *interrupt(void *into_socket) {
    static char text[FULL];
    usleep(200000);
    IS(pthread_kill(waiter, SIGUSR1), 0);
    usleep(200000);
    if (into_socket) {
        IS(write(into[1], "abc", 3), 3);
    } else {
        CHECK(read(from[0], text, sizeof text) > 0);
    }
    return NULL;
}

static void run(int flags) {
    static char text[FULL];
    pthread_t other;
    int ends[2];
    struct sigaction handler = {.sa_handler = count, .sa_flags = flags};
    IS(sigaction(SIGUSR1, &handler, NULL), 0);
    waiter = pthread_self();
    pair_here(ends);
    nonblocking(ends[0]);
    nonblocking(ends[1]);
    for (int i = 0; i < 40; i++) {
        IS(write(ends[0], "warm", 4), 4);
        when_readable(ends[1]);
        IS(read(ends[1], text, 4), 4);
        IS(write(ends[1], "warm", 4), 4);
        when_readable(ends[0]);
        IS(read(ends[0], text, 4), 4);
    }
    IS(pipe(into), 0);
    IS(pipe(from), 0);
    signals = 0;
    IS(pthread_create(&other, NULL, interrupt, into), 0);
    ssize_t n = splice(into[0], NULL, ends[0], NULL, 100, 0);
    say("into: %zd %s, %d signal", n, n < 0 ? strerror(errno) : "bytes", signals);
    joined(other);
    IS(write(ends[0], "hello", 5), 5);
    when_readable(ends[1]);
    if (n == 3) IS(read(ends[1], text, 3), 3);
    IS(write(from[1], text, FULL), FULL);
    signals = 0;
    IS(pthread_create(&other, NULL, interrupt, NULL), 0);
    n = splice(ends[1], NULL, from[1], NULL, 5, 0);
    say("out: %zd %s, %d signal", n, n < 0 ? strerror(errno) : "bytes", signals);
    joined(other);
    for (int i = 0; i < 2; i++) {
        IS(close(into[i]), 0);
        IS(close(from[i]), 0);
        IS(close(ends[i]), 0);
    }
}

int main(void) {
    run(SA_RESTART);
    run(0);
}
