// Ping-pong of small messages between two processes.
// Without pauses: half round trips, timed in batches. With pauses: both sides sleep before each message,
// so that every receiver is asleep, and each times the way from the other's stamp to its own return from recv.
#include "common.h"

enum { MOST_SAMPLES = 1 << 18 };
static int64_t samples[MOST_SAMPLES];
static size_t taken;
static struct options o;
static int fd, epoll_fd;

static void sample(int64_t picoseconds) {
    if (taken < MOST_SAMPLES) samples[taken++] = picoseconds;
}

static void wait_readable(void) {
    struct epoll_event event;
    if (epoll_wait(epoll_fd, &event, 1, -1) < 0 && errno != EINTR) die("epoll_wait");
}

static void receive(char *buffer) {
    for (size_t got = 0; got < o.size;) {
        if (o.mode == EPOLL_LEVEL) wait_readable();
        ssize_t n = recv(fd, buffer + got, o.size - got, 0);
        if (n > 0) {
            got += (size_t)n;
        } else if (n == 0) {
            errno = ENOTCONN, die("the peer closed too early");
        } else if (errno == EAGAIN && o.mode != BLOCKING) {
            if (o.mode == EPOLL_EDGE) wait_readable();
        } else if (errno != EINTR) {
            die("recv");
        }
    }
}

static void exchange(char *buffer, uint64_t sequence, enum kind kind) {
    fill(buffer, o.size, sequence, o.pause_us ? now_ns() : 0, kind);
    send_all(fd, buffer, o.size);
    receive(buffer);
    struct message reply = checked(buffer, o.size, sequence);
    if (kind == MEASURE && o.pause_us) sample((int64_t)(now_ns() - reply.stamp_ns) * 1000);
}

static void client(char *buffer) {
    uint64_t sequence = 1;
    for (long i = 0; i < o.warmup; i++) {
        if (i < 100) pause_us(100); // time for whatever happens beside the connection
        exchange(buffer, sequence++, WARM_UP);
    }
    uint64_t cpu = cpu_ns(), begin = now_ns(), first = sequence;
    if (o.pause_us) {
        for (long i = 0; i < o.count; i++) {
            pause_us(o.pause_us);
            exchange(buffer, sequence++, MEASURE);
        }
    } else {
        uint64_t end = begin + (uint64_t)(o.seconds * 1e9), last = begin;
        while (last < end && taken < MOST_SAMPLES) {
            for (int i = 0; i < o.batch; i++) exchange(buffer, sequence++, MEASURE);
            uint64_t now = now_ns();
            sample((int64_t)((now - last) * 1000 / (2 * (uint64_t)o.batch)));
            last = now;
        }
    }
    uint64_t elapsed = now_ns() - begin;
    cpu = cpu_ns() - cpu;
    uint64_t messages = sequence - first;
    exchange(buffer, sequence, END);
    printf("result messages=%llu elapsed_ns=%llu cpu_ns=%llu", (unsigned long long)messages,
           (unsigned long long)elapsed, (unsigned long long)cpu);
}

static void server(char *buffer) {
    uint64_t cpu = 0, begin = 0, messages = 0;
    for (uint64_t sequence = 1;; sequence++) {
        receive(buffer);
        uint64_t now = o.pause_us ? now_ns() : 0;
        struct message m = checked(buffer, o.size, sequence);
        if (m.kind == MEASURE) {
            if (!messages++) cpu = cpu_ns(), begin = now_ns();
            if (o.pause_us) {
                sample((int64_t)(now - m.stamp_ns) * 1000);
                pause_us(o.pause_us);
                fill(buffer, o.size, sequence, now_ns(), MEASURE);
            }
        }
        send_all(fd, buffer, o.size);
        if (m.kind == END) break;
    }
    printf("result messages=%llu elapsed_ns=%llu cpu_ns=%llu", (unsigned long long)messages,
           (unsigned long long)(now_ns() - begin), (unsigned long long)(cpu_ns() - cpu));
}

int main(int argc, char **argv) {
    o = options_of(argc, argv);
    if (o.size < sizeof(struct message)) die("messages of at least %zu bytes", sizeof(struct message));
    memset(samples, 1, sizeof samples); // its page faults come before the measurement
    char *buffer = calloc(1, o.size);
    fd = one_connection(&o);
    if (o.mode != BLOCKING) {
        int flags = fcntl(fd, F_GETFL);
        if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) die("fcntl");
    }
    if (o.mode == EPOLL_LEVEL || o.mode == EPOLL_EDGE) {
        struct epoll_event event = {.events = EPOLLIN | (o.mode == EPOLL_EDGE ? EPOLLET : 0)};
        if ((epoll_fd = epoll_create1(0)) < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) die("epoll");
    }
    if (strcmp(o.role, "server")) client(buffer);
    else server(buffer);
    print_quantiles(samples, taken);
    puts("\nend");
    return 0;
}
