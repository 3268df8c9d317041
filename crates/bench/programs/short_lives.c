// From which exchange on a connection that moves into a ring has paid for it: connections of 1, 2, 3 … exchanges of 64 bytes, one after another, and the time that each takes from connect to
// close. Run plainly and under `ginnel run`, with several GINNEL_AFTER: docs/performance.md.
#include "common.h"
#include <sys/wait.h>

enum { SIZE = 64, EACH = 300 };

static const int EXCHANGES[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 20, 24, 32, 64, 512};

static void serve(int listener, const struct options *o) {
    char text[SIZE];
    for (;;) {
        int fd = accepted(listener, o);
        while (recv(fd, text, SIZE, MSG_WAITALL) == SIZE) send_all(fd, text, SIZE);
        close(fd);
    }
}

static int64_t lived(const struct options *o, int exchanges) {
    char text[SIZE] = {0};
    uint64_t start = now_ns();
    int fd = connected(o);
    for (int i = 0; i < exchanges; i++) {
        send_all(fd, text, SIZE);
        recv_all(fd, text, SIZE);
    }
    close(fd);
    return (int64_t)(now_ns() - start);
}

int main(void) {
    struct options o = {.addr = "127.0.0.1:0", .nodelay = 1};
    int listener = listening(&o);
    struct sockaddr_in at;
    socklen_t length = sizeof at;
    char addr[32];
    if (getsockname(listener, (void *)&at, &length) < 0) die("getsockname");
    snprintf(addr, sizeof addr, "127.0.0.1:%d", ntohs(at.sin_port));
    o.addr = addr;
    pid_t server = fork();
    if (server < 0) die("fork");
    pin(server != 0);
    if (server == 0) serve(listener, &o);
    for (size_t at = 0; at < sizeof EXCHANGES / sizeof *EXCHANGES; at++) {
        int exchanges = EXCHANGES[at];
        int64_t times[EACH];
        for (int i = 0; i < EACH; i++) times[i] = lived(&o, exchanges);
        qsort(times, EACH, sizeof *times, ascending);
        printf("%d exchanges: %.0f us\n", exchanges, (double)times[EACH / 2] / 1e3);
    }
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
}
