// What the workload programs share: options, clocks, pinning, addresses, messages and result lines.
// They are ordinary socket programs: nothing here knows of Ginnel.
//
// Standard output is for the machine: "listening PORT", "result key=value ...", "end".
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum mode { BLOCKING, EPOLL_LEVEL, EPOLL_EDGE, SPIN };

struct options {
    const char *role;   // "server" or "client"; a reference's name in references.c
    const char *addr;   // "ADDRESS:PORT" or "unix:PATH"
    enum mode mode;
    size_t size;        // bytes of one message or one write
    double seconds;     // how long to measure
    long count;         // messages to measure with pauses
    long warmup;        // exchanges before measuring
    long pause_us;      // pause before each message, µs; 0: none
    int cpu, peer_cpu;  // processor to run on, -1: any; peer_cpu: the forked half of a reference
    int batch;          // exchanges timed together
    int connections;
    int nodelay;
    int64_t bytes;      // bytes to stream; 0: for `seconds` instead
    const char *mark;   // file to make when the sleep begins that is measured; 0: none
};

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...) {
    va_list args;
    int error = errno;
    va_start(args, format);
    vfprintf(stderr, format, args);
    fprintf(stderr, " (%s)\n", strerror(error));
    exit(1);
}

static inline uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t cpu_ns(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (uint64_t)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000000000u +
           (uint64_t)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1000u;
}

static inline void pause_us(long us) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    while (nanosleep(&t, &t) < 0 && errno == EINTR) {}
}

static void pin(int cpu) {
    if (cpu < 0) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) < 0) die("pinning to cpu %d", cpu);
}

__attribute__((unused)) static struct options options_of(int argc, char **argv) {
    struct options o = {.addr = "127.0.0.1:0", .size = 64, .seconds = 0.2, .count = 200, .warmup = 200,
                        .cpu = -1, .peer_cpu = -1, .batch = 16, .connections = 1, .nodelay = 1};
    static const struct option names[] = {
        {"addr", 1, 0, 'a'},  {"mode", 1, 0, 'm'},     {"size", 1, 0, 's'},    {"seconds", 1, 0, 't'},
        {"count", 1, 0, 'n'}, {"warmup", 1, 0, 'w'},   {"pause-us", 1, 0, 'p'}, {"cpu", 1, 0, 'c'},
        {"batch", 1, 0, 'b'}, {"bytes", 1, 0, 'B'},    {"connections", 1, 0, 'C'}, {"nodelay", 1, 0, 'd'},
        {"peer-cpu", 1, 0, 'P'}, {"mark", 1, 0, 'M'},  {0}};
    static const char *const modes[] = {"blocking", "epoll", "epoll-edge", "spin"};
    if (argc < 2) die("usage: %s server|client [options]", argv[0]);
    o.role = argv[1];
    for (int c; (c = getopt_long(argc - 1, argv + 1, "", names, 0)) != -1;) switch (c) {
        case 'a': o.addr = optarg; break;
        case 'm':
            for (o.mode = BLOCKING; strcmp(modes[o.mode], optarg); o.mode++)
                if (o.mode == SPIN) die("unknown mode %s", optarg);
            break;
        case 's': o.size = strtoul(optarg, 0, 10); break;
        case 'M': o.mark = optarg; break;
        case 't': o.seconds = strtod(optarg, 0); break;
        case 'n': o.count = atol(optarg); break;
        case 'w': o.warmup = atol(optarg); break;
        case 'p': o.pause_us = atol(optarg); break;
        case 'c': o.cpu = atoi(optarg); break;
        case 'P': o.peer_cpu = atoi(optarg); break;
        case 'b': o.batch = atoi(optarg); break;
        case 'B': o.bytes = atoll(optarg); break;
        case 'C': o.connections = atoi(optarg); break;
        case 'd': o.nodelay = atoi(optarg); break;
        default: exit(2);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL); // whoever measures is gone: so are we
    signal(SIGPIPE, SIG_IGN);
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    pin(o.cpu);
    return o;
}

union address {
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_un un;
};

static socklen_t parse_address(const char *text, union address *a) {
    memset(a, 0, sizeof *a);
    if (!strncmp(text, "unix:", 5)) {
        a->un.sun_family = AF_UNIX;
        if (strlen(text + 5) >= sizeof a->un.sun_path) die("path too long: %s", text);
        strcpy(a->un.sun_path, text + 5);
        return sizeof a->un;
    }
    char host[64] = "";
    int port = 0;
    if (sscanf(text, "%63[^:]:%d", host, &port) != 2) die("not ADDRESS:PORT: %s", text);
    a->in.sin_family = AF_INET;
    a->in.sin_port = htons((uint16_t)port);
    if (inet_pton(AF_INET, host, &a->in.sin_addr) != 1) die("not an address: %s", host);
    return sizeof a->in;
}

static void set_nodelay(int fd, const struct options *o) {
    int one = 1;
    if (strncmp(o->addr, "unix:", 5) && o->nodelay && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) < 0)
        die("TCP_NODELAY");
}

// Listens and says where.
static int listening(const struct options *o) {
    union address a;
    socklen_t length = parse_address(o->addr, &a);
    int fd = socket(a.any.sa_family, SOCK_STREAM, 0), one = 1;
    if (fd < 0) die("socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, &a.any, length) < 0 || listen(fd, 1024) < 0) die("listening on %s", o->addr);
    if (getsockname(fd, &a.any, &length) < 0) die("getsockname");
    printf("listening %d\n", a.any.sa_family == AF_INET ? ntohs(a.in.sin_port) : 0);
    fflush(stdout);
    return fd;
}

static int accepted(int listener, const struct options *o) {
    int fd = accept(listener, 0, 0);
    if (fd < 0) die("accept");
    set_nodelay(fd, o);
    return fd;
}

static int connected(const struct options *o) {
    union address a;
    socklen_t length = parse_address(o->addr, &a);
    int fd = socket(a.any.sa_family, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, &a.any, length) < 0) die("connecting to %s", o->addr);
    set_nodelay(fd, o);
    return fd;
}

// The one connection of this process, from either end.
__attribute__((unused)) static int one_connection(const struct options *o) {
    if (strcmp(o->role, "server")) return connected(o);
    int listener = listening(o), fd = accepted(listener, o);
    close(listener);
    return fd;
}

// Every message starts with this and ends with the low byte of its sequence number.
enum kind { WARM_UP = 1, MEASURE, START, END };
struct message {
    uint64_t sequence, stamp_ns, kind;
};

static inline void fill(char *buffer, size_t size, uint64_t sequence, uint64_t stamp, enum kind kind) {
    struct message m = {sequence, stamp, kind};
    memcpy(buffer, &m, sizeof m);
    if (size > sizeof m) buffer[size - 1] = (char)sequence;
}

static inline struct message checked(const char *buffer, size_t size, uint64_t sequence) {
    struct message m;
    memcpy(&m, buffer, sizeof m);
    if (m.sequence != sequence || (size > sizeof m && buffer[size - 1] != (char)sequence)) {
        errno = EPROTO;
        die("message %llu expected, %llu came", (unsigned long long)sequence, (unsigned long long)m.sequence);
    }
    return m;
}

static inline void send_all(int fd, const char *buffer, size_t size) {
    while (size) {
        ssize_t n = send(fd, buffer, size, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            struct pollfd p = {fd, POLLOUT, 0};
            poll(&p, 1, -1);
            continue;
        }
        if (n < 0) die("send");
        buffer += n;
        size -= (size_t)n;
    }
}

static inline void recv_all(int fd, char *buffer, size_t size) {
    while (size) {
        ssize_t n = recv(fd, buffer, size, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) die("recv");
        if (n == 0) errno = ENOTCONN, die("the peer closed too early");
        buffer += n;
        size -= (size_t)n;
    }
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

// Sorts the samples (in picoseconds, so that batches keep their fractions) and prints their quantiles as part of a result line. They may be negative:
// where two machines' clocks are apart, one way looks shorter by as much as the other looks longer.
__attribute__((unused)) static void print_quantiles(int64_t *samples, size_t n) {
    if (!n) return;
    qsort(samples, n, sizeof *samples, ascending);
    printf(" samples=%zu min_ns=%.1f p50_ns=%.1f p90_ns=%.1f p99_ns=%.1f p999_ns=%.1f max_ns=%.1f", n, samples[0] / 1000.0,
           samples[n / 2] / 1000.0, samples[n * 9 / 10] / 1000.0, samples[n * 99 / 100] / 1000.0, samples[n * 999 / 1000] / 1000.0,
           samples[n - 1] / 1000.0);
}
