// Two processes that scripts/bench-broker.sh has meet by the broker, and in other ways.
//
//   asked server --addr ADDRESS:PORT                 answers each connection, in a thread of its own
//   asked lives --addr ADDRESS:PORT --count N        N connections each of 1, 16 and 64 exchanges of 64
//                                                    bytes, one after another: the median of how long
//                                                    one takes to its close, us
//   asked steady --addr ADDRESS:PORT --seconds N     exchanges on one connection, and the longest of
//                                                    each second
#include "common.h"
#include <pthread.h>

enum { SIZE = 64 };

static const int EXCHANGES[] = {1, 16, 64};

static void *answer(void *connection) {
    char text[SIZE];
    int fd = (int)(intptr_t)connection;
    while (recv(fd, text, SIZE, MSG_WAITALL) == SIZE) send_all(fd, text, SIZE);
    close(fd);
    return 0;
}

static void serve(const struct options *o) {
    int listener = listening(o);
    for (;;) {
        pthread_t thread;
        int fd = accepted(listener, o);
        if (pthread_create(&thread, 0, answer, (void *)(intptr_t)fd) != 0) die("a thread");
        pthread_detach(thread);
    }
}

static void exchange(int fd) {
    char text[SIZE] = {0};
    send_all(fd, text, SIZE);
    recv_all(fd, text, SIZE);
}

static void lives(const struct options *o) {
    int64_t *times = calloc((size_t)o->count, sizeof *times);
    if (!times) die("memory");
    for (size_t at = 0; at < sizeof EXCHANGES / sizeof *EXCHANGES; at++) {
        for (long i = 0; i < o->count; i++) {
            uint64_t start = now_ns();
            int fd = connected(o);
            for (int left = EXCHANGES[at]; left > 0; left--) exchange(fd);
            close(fd);
            times[i] = (int64_t)(now_ns() - start);
        }
        qsort(times, (size_t)o->count, sizeof *times, ascending);
        printf("%d %.1f\n", EXCHANGES[at], (double)times[o->count / 2] / 1e3);
    }
    free(times);
}

static void steady(const struct options *o) {
    int fd = connected(o);
    for (int second = 1; second <= (int)o->seconds; second++) {
        long count = 0;
        uint64_t longest = 0, start = now_ns(), last = start;
        while (last - start < 1000000000u) {
            exchange(fd);
            uint64_t now = now_ns();
            if (now - last > longest) longest = now - last;
            last = now;
            count++;
        }
        printf("second %d: %ld exchanges, the longest %.0f us\n", second, count, (double)longest / 1e3);
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    struct options o = options_of(argc, argv);
    if (!strcmp(o.role, "server")) serve(&o);
    else if (!strcmp(o.role, "lives")) lives(&o);
    else if (!strcmp(o.role, "steady")) steady(&o);
    else die("unknown role %s", o.role);
}
