// Many connections, a few exchanges on each, then both sides are left alone until that is all over (after the last byte the
// path is looked at for some seconds), sleep in epoll_wait and say what the sleep cost.
// Afterwards every connection must still carry a message.
#include "common.h"

enum { SIZE = 64, LINGER_MS = 6000, SETTLE_MS = 300 };
static struct options o;
static int *fds, epoll_fd;

static void watch(int fd, uint32_t number) {
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = number};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) die("epoll_ctl");
}

// Sleeps and prints what it cost. Nothing is due: any event is counted as spurious.
static void idle(void) {
    struct epoll_event event;
    uint64_t spurious = 0;
    pause_us(LINGER_MS * 1000);
    if (o.mark && close(open(o.mark, O_CREAT | O_WRONLY, 0600)) < 0) die("%s", o.mark);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    uint64_t cpu = cpu_ns(), begin = now_ns(), end = begin + (uint64_t)(o.seconds * 1e9);
    for (uint64_t now = begin; now < end; now = now_ns()) {
        int n = epoll_wait(epoll_fd, &event, 1, (int)((end - now) / 1000000 + 1));
        if (n < 0 && errno != EINTR) die("epoll_wait");
        spurious += n > 0;
    }
    uint64_t elapsed = now_ns() - begin;
    cpu = cpu_ns() - cpu;
    getrusage(RUSAGE_SELF, &after);
    printf("result connections=%d elapsed_ns=%llu cpu_ns=%llu spurious=%llu switches=%ld\n", o.connections,
           (unsigned long long)elapsed, (unsigned long long)cpu, (unsigned long long)spurious,
           after.ru_nvcsw - before.ru_nvcsw);
}

static void client(void) {
    char buffer[SIZE] = "";
    uint64_t sequence = 1;
    for (int i = 0; i < o.connections; i++) watch(fds[i] = connected(&o), (uint32_t)i);
    for (long round = 0; round <= o.warmup + 1; round++) {
        if (round == o.warmup + 1) {
            idle();
            pause_us(SETTLE_MS * 1000); // the server has finished its sleep, too
        }
        for (int i = 0; i < o.connections; i++) {
            fill(buffer, SIZE, sequence, 0, round < o.warmup ? WARM_UP : round == o.warmup ? START : END);
            send_all(fds[i], buffer, SIZE);
            struct epoll_event event;
            if (epoll_wait(epoll_fd, &event, 1, -1) != 1 || event.data.u32 != (uint32_t)i) die("epoll_wait");
            recv_all(fds[i], buffer, SIZE);
            checked(buffer, SIZE, sequence++);
        }
    }
}

static void server(void) {
    int listener = listening(&o);
    char buffer[SIZE];
    uint64_t sequence = 1;
    for (int i = 0; i < o.connections; i++) watch(fds[i] = accepted(listener, &o), (uint32_t)i);
    close(listener);
    for (int starts = 0, ends = 0; ends < o.connections;) {
        struct epoll_event event;
        if (epoll_wait(epoll_fd, &event, 1, -1) != 1) die("epoll_wait");
        recv_all(fds[event.data.u32], buffer, SIZE);
        struct message m = checked(buffer, SIZE, sequence++);
        send_all(fds[event.data.u32], buffer, SIZE);
        ends += m.kind == END;
        starts += m.kind == START;
        if (m.kind == START && starts == o.connections) idle();
    }
}

int main(int argc, char **argv) {
    o = options_of(argc, argv);
    fds = calloc((size_t)o.connections, sizeof *fds);
    if ((epoll_fd = epoll_create1(0)) < 0) die("epoll_create1");
    if (strcmp(o.role, "server")) client();
    else server();
    // In order: what a process leaves open others clear away later, and the next sample, which watches them sleep, would count that.
    for (int i = 0; i < o.connections; i++) close(fds[i]);
    puts("end");
    return 0;
}
