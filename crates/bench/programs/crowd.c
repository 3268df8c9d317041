// Many connections of which some are busy: ping-pong on the first `count` of them, all at once, the others idle. Both ends wait in one epoll set.
// What the idle ones cost the busy ones is the question; and what making and ending so many takes.
#include "common.h"

enum { SIZE = 64, EVENTS = 64 };
static struct options o;
static int *fds, epoll_fd;

static void watch(int fd, uint32_t number) {
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = number};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) die("epoll_ctl");
}

static int wait_events(struct epoll_event *events) {
    int n = epoll_wait(epoll_fd, events, EVENTS, -1);
    if (n < 0 && errno == EINTR) return 0;
    if (n < 0) die("epoll_wait");
    return n;
}

static void say(int i, uint64_t sequence, enum kind kind) {
    char buffer[SIZE] = "";
    fill(buffer, SIZE, sequence, 0, kind);
    send_all(fds[i], buffer, SIZE);
}

static struct message hear(int i) {
    char buffer[SIZE];
    struct message m;
    recv_all(fds[i], buffer, SIZE);
    memcpy(&m, buffer, sizeof m);
    return checked(buffer, SIZE, m.sequence);
}

// One exchange after another on all connections, in groups: a connection moves while others are spoken on.
static void warm_up(void) {
    struct epoll_event events[EVENTS];
    for (long round = 0; round < o.warmup; round++)
        for (int i = 0, group; i < o.connections; i += group) {
            group = o.connections - i < EVENTS ? o.connections - i : EVENTS;
            for (int j = i; j < i + group; j++) say(j, (uint64_t)round, WARM_UP);
            for (int answered = 0; answered < group;) {
                int n = wait_events(events);
                for (int k = 0; k < n; k++, answered++) hear((int)events[k].data.u32);
            }
        }
}

static void client(void) {
    struct epoll_event events[EVENTS];
    uint64_t begin = now_ns();
    for (int i = 0; i < o.connections; i++) watch(fds[i] = connected(&o), (uint32_t)i);
    warm_up();
    uint64_t made = now_ns() - begin, cpu = cpu_ns(), exchanges = 0, end;
    int busy = o.count < o.connections ? (int)o.count : o.connections;
    begin = now_ns(), end = begin + (uint64_t)(o.seconds * 1e9);
    for (int i = 0; i < busy; i++) say(i, 1, MEASURE);
    for (int under_way = busy; under_way;) {
        int n = wait_events(events), more = now_ns() < end;
        for (int k = 0; k < n; k++) {
            struct message m = hear((int)events[k].data.u32);
            exchanges++;
            if (more) say((int)events[k].data.u32, m.sequence + 1, MEASURE);
            else under_way--;
        }
    }
    uint64_t elapsed = now_ns() - begin;
    cpu = cpu_ns() - cpu;
    begin = now_ns();
    for (int i = 0; i < o.connections; i++) close(fds[i]);
    printf("result exchanges=%llu elapsed_ns=%llu cpu_ns=%llu per_s=%.0f made_ns=%.0f closed_ns=%.0f\n", (unsigned long long)exchanges,
           (unsigned long long)elapsed, (unsigned long long)cpu, (double)exchanges * 1e9 / (double)elapsed,
           (double)made / o.connections, (double)(now_ns() - begin) / o.connections);
}

static void server(void) {
    struct epoll_event events[EVENTS];
    int listener = listening(&o), open = 0, accepted_so_far = 0;
    uint64_t begin = 0, cpu = 0;
    watch(listener, UINT32_MAX);
    while (accepted_so_far < o.connections || open) {
        int n = wait_events(events);
        for (int k = 0; k < n; k++) {
            uint32_t i = events[k].data.u32;
            if (i == UINT32_MAX) {
                watch(fds[accepted_so_far] = accepted(listener, &o), (uint32_t)accepted_so_far);
                accepted_so_far++, open++;
                continue;
            }
            char buffer[SIZE];
            ssize_t got = recv(fds[i], buffer, SIZE, 0);
            if (got == 0 || (got < 0 && errno == ECONNRESET)) {
                close(fds[i]);
                open--;
                continue;
            }
            if (got < 0) die("recv");
            recv_all(fds[i], buffer + got, SIZE - (size_t)got);
            if (!begin && ((struct message *)buffer)->kind == MEASURE) begin = now_ns(), cpu = cpu_ns();
            send_all(fds[i], buffer, SIZE);
        }
    }
    printf("result elapsed_ns=%llu cpu_ns=%llu\n", (unsigned long long)(now_ns() - begin), (unsigned long long)(cpu_ns() - cpu));
}

int main(int argc, char **argv) {
    o = options_of(argc, argv);
    fds = calloc((size_t)o.connections, sizeof *fds);
    if ((epoll_fd = epoll_create1(0)) < 0) die("epoll_create1");
    if (strcmp(o.role, "server")) client();
    else server();
    puts("end");
    return 0;
}
