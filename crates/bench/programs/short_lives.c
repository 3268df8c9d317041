// From which exchange on a connection that moves into a ring has paid for it: connections of 1, 2, 4 … exchanges of 64 bytes, one after another, and the time that each takes from connect to
// close. Run plainly and under `ginnel run`, with several GINNEL_AFTER: docs/performance.md.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 64, MOST = 512, EACH = 200 };

#define CHECK(condition) ((condition) ? (void)0 : (perror(#condition), exit(1)))

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void stay_on(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
}

static void serve(int listener) {
    char text[SIZE];
    int one = 1;
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        CHECK(fd >= 0 && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
        while (recv(fd, text, SIZE, MSG_WAITALL) == SIZE) CHECK(send(fd, text, SIZE, MSG_NOSIGNAL) == SIZE);
        close(fd);
    }
}

static double lived(const struct sockaddr_in *at, int exchanges) {
    char text[SIZE] = {0};
    int one = 1;
    double start = now();
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fd, (const void *)at, sizeof *at) == 0 && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    for (int i = 0; i < exchanges; i++) CHECK(send(fd, text, SIZE, MSG_NOSIGNAL) == SIZE && recv(fd, text, SIZE, MSG_WAITALL) == SIZE);
    close(fd);
    return now() - start;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, (void *)&at, len) == 0 && listen(listener, 128) == 0 && getsockname(listener, (void *)&at, &len) == 0);
    pid_t server = fork();
    CHECK(server >= 0);
    if (server == 0) stay_on(0), serve(listener);
    stay_on(1);
    for (int exchanges = 1; exchanges <= MOST; exchanges *= 2) {
        double times[EACH];
        for (int i = 0; i < EACH; i++) times[i] = lived(&at, exchanges);
        qsort(times, EACH, sizeof *times, by_size);
        printf("%d exchanges: %.0f us\n", exchanges, times[EACH / 2]);
    }
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
}
