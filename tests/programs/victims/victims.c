// Programs at work while somebody spoils their shared memory: a server of threads that block, a server of edge-triggered epoll, clients of short
// connections, a stream each way through poll.
//
//     victims SECONDS
//
// They may lose connections, and the bytes in them. No call may take longer than its time limit and some patience, no process may end by a signal, and once all is
// quiet none may use the processor. Knows nothing of Ginnel; on plain TCP no connection is lost, and it says so.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT = 150, STUCK = 15000, QUIET = 2000, THREADS = 64 };

static int64_t over;
static const char *role = "parent";
static uint64_t exchanges, resets, refused, limits, ends, wrong;
static int64_t since[THREADS];
static const char *doing[THREADS];
static int64_t idle_percent;
static __thread int me;
static int threads;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int64_t processor_ms(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000 + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1000;
}

// Around every call on a socket.
#define CALL(what) ({ doing[me] = #what; __atomic_store_n(&since[me], now(), __ATOMIC_SEQ_CST); \
    long r_ = (long)(what); int e_ = errno; __atomic_store_n(&since[me], 0, __ATOMIC_SEQ_CST); errno = e_; r_; })

static void *watch(void *unused) {
    for (;;) {
        usleep(200000);
        for (int i = 0; i < THREADS; i++) {
            int64_t at = __atomic_load_n(&since[i], __ATOMIC_SEQ_CST);
            if (at != 0 && now() - at > STUCK) {
                fprintf(stderr, "%s (%d): %s does not return\n", role, getpid(), doing[i]);
                // Left as it is, for the test's watch to look at.
                pause();
            }
        }
    }
    return unused;
}

static void begin(const char *name) {
    pthread_t t;
    role = name;
    memset(since, 0, sizeof since);
    threads = 1;
    pthread_create(&t, NULL, watch, NULL);
}

// True until the end. When the clients have ended, nobody sends anything any more: what this process uses of the processor from then on it uses for nothing.
static bool goes_on(void) {
    static int64_t before = -1, since_ms;
    int64_t t = now();
    if (before < 0 && t > over + QUIET / 4) before = processor_ms(), since_ms = t;
    if (t < over + QUIET) return true;
    idle_percent = (processor_ms() - before) * 100 / (t - since_ms);
    return false;
}

// By which TCP ends a connection, ICMP's words among them (icmp_err_convert in Linux). Who writes the
// ledger at random may put any of them into a slot; the library tells no other.
static bool ends_a_connection(int error) {
    switch (error) {
    case ECONNRESET: case EPIPE: case ENOTCONN: case ECONNABORTED: case ECONNREFUSED: case EHOSTUNREACH: case ENETUNREACH:
    case EHOSTDOWN: case ENETDOWN: case ENONET: case EPROTO: case ENOPROTOOPT: case EACCES:
        return true;
    default:
        return false;
    }
}

static bool lost(ssize_t r) {
    if (r == 0) __atomic_fetch_add(&ends, 1, __ATOMIC_RELAXED);
    else if (ends_a_connection(errno)) __atomic_fetch_add(&resets, 1, __ATOMIC_RELAXED);
    else if (errno == EAGAIN || errno == ETIMEDOUT) __atomic_fetch_add(&limits, 1, __ATOMIC_RELAXED);
    else {
        fprintf(stderr, "%s (%d): %s: %s\n", role, getpid(), doing[me], strerror(errno));
        _exit(4);
    }
    return true;
}

static void limit(int fd) {
    struct timeval t = {.tv_usec = LIMIT * 1000};
    int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static void *echo(void *arg) {
    int fd = (int)(intptr_t)arg;
    static __thread char buffer[70000];
    me = 1 + __atomic_fetch_add(&threads, 1, __ATOMIC_RELAXED) % (THREADS - 1);
    for (;;) {
        ssize_t got = CALL(recv(fd, buffer, sizeof buffer, 0));
        if (got > (ssize_t)sizeof buffer) abort();
        if (got < 0 && errno == EAGAIN && now() < over + QUIET) continue;
        if (got <= 0) break;
        bool all = true;
        for (ssize_t at = 0; at < got && all;) {
            ssize_t put = CALL(send(fd, buffer + at, (size_t)(got - at), MSG_NOSIGNAL));
            all = put > 0;
            at += put;
        }
        if (!all) break;
    }
    CALL(close(fd));
    return NULL;
}

static int server_of_threads(int listener) {
    begin("threads");
    while (goes_on()) {
        struct pollfd p = {.fd = listener, .events = POLLIN};
        if (CALL(poll(&p, 1, 100)) <= 0) continue;
        int fd = (int)CALL(accept(listener, NULL, NULL));
        if (fd < 0) continue;
        limit(fd);
        pthread_t t;
        pthread_attr_t a;
        pthread_attr_init(&a);
        pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
        pthread_attr_setstacksize(&a, 256 << 10);
        if (pthread_create(&t, &a, echo, (void *)(intptr_t)fd) != 0) CALL(close(fd));
    }
    return 0;
}

// What of an echo the kernel did not take yet.
struct rest { char *bytes; size_t at, n; };

// What a wait told, for whoever looks into a failure.
static void tell(const struct epoll_event *events, int n, int at) {
    int why = errno;
    for (int i = 0; i < n; i++) {
        int fd = events[i].data.fd, waiting = -1, error = ioctl(fd, FIONREAD, &waiting) != 0 ? errno : 0;
        fprintf(stderr, "%s (%d): event %d of %d%s: %d is %x, %d bytes, %s\n", role, getpid(), i, n, i == at ? " (here)" : "", fd, events[i].events, waiting, strerror(error));
    }
    errno = why;
}

static int server_of_events(int listener) {
    static struct rest rests[4096];
    static char buffer[70000];
    begin("events");
    int set = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN, .data.fd = listener};
    epoll_ctl(set, EPOLL_CTL_ADD, listener, &e);
    while (goes_on()) {
        struct epoll_event events[32];
        int n = (int)CALL(epoll_wait(set, events, 32, 100));
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                fd = (int)CALL(accept4(listener, NULL, NULL, SOCK_NONBLOCK));
                if (fd < 0 || fd >= 4096) continue;
                // Every other one level-triggered.
                e = (struct epoll_event){.events = EPOLLIN | EPOLLRDHUP | (fd & 1 ? EPOLLET | EPOLLOUT : 0), .data.fd = fd};
                epoll_ctl(set, EPOLL_CTL_ADD, fd, &e);
                continue;
            }
            struct rest *rest = &rests[fd];
            bool dead = false;
            for (int turns = 0; turns < 64 && !dead; turns++) {
                if (rest->n != 0) {
                    ssize_t put = CALL(send(fd, rest->bytes + rest->at, rest->n, MSG_NOSIGNAL));
                    if (put > 0) rest->at += (size_t)put, rest->n -= (size_t)put;
                    else if (errno != EAGAIN) dead = lost(put);
                    if (rest->n != 0) break;
                }
                ssize_t got = CALL(recv(fd, buffer, sizeof buffer, 0));
                if (got > (ssize_t)sizeof buffer) abort();
                if (got < 0 && errno == EAGAIN) break;
                if (got < 0 && errno == EBADF) tell(events, n, i);
                if (got <= 0) dead = lost(got);
                else {
                    free(rest->bytes);
                    rest->bytes = memcpy(malloc((size_t)got), buffer, (size_t)got), rest->at = 0, rest->n = (size_t)got;
                }
            }
            if (!dead && !(fd & 1)) {
                e = (struct epoll_event){.events = rest->n != 0 ? EPOLLOUT : EPOLLIN | EPOLLRDHUP, .data.fd = fd};
                epoll_ctl(set, EPOLL_CTL_MOD, fd, &e);
            }
            if (dead) {
                free(rest->bytes);
                *rest = (struct rest){0};
                CALL(close(fd));
            }
        }
    }
    if (idle_percent > 50) {
        struct epoll_event events[32];
        for (int i = 0; i < 3; i++) tell(events, (int)CALL(epoll_wait(set, events, 32, 100)), -1);
    }
    return 0;
}

static int reach(uint16_t port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    limit(fd);
    if (CALL(connect(fd, (void *)&at, sizeof at)) != 0) {
        refused++;
        CALL(close(fd));
        return -1;
    }
    return fd;
}

// Connections of one exchange or a few hundred, of all sizes.
static int client_of_many(const uint16_t ports[2], unsigned seed) {
    static char out[40000], in[70000];
    begin("many");
    memset(out, 'x', sizeof out);
    while (now() < over) {
        int fd = reach(ports[rand_r(&seed) % 2]);
        if (fd < 0) continue;
        int rounds = rand_r(&seed) % 3 == 0 ? 1 : rand_r(&seed) % 300;
        bool up = true;
        for (int i = 0; i < rounds && up && now() < over; i++) {
            size_t n = 1 + (size_t)rand_r(&seed) % (rand_r(&seed) % 4 == 0 ? sizeof out - 1 : 200);
            for (size_t at = 0; at < n && up;) {
                ssize_t put = CALL(send(fd, out + at, n - at, MSG_NOSIGNAL));
                if (put <= 0) up = !lost(put);
                else at += (size_t)put;
            }
            for (size_t at = 0; at < n && up;) {
                if (rand_r(&seed) % 16 == 0) CALL(recv(fd, in, 100, MSG_PEEK | MSG_DONTWAIT));
                int pending;
                if (rand_r(&seed) % 16 == 0) CALL(ioctl(fd, FIONREAD, &pending));
                ssize_t got = CALL(recv(fd, in, sizeof in, 0));
                if (got > (ssize_t)sizeof in) abort();
                if (got <= 0) up = !lost(got);
                else {
                    for (ssize_t j = 0; j < got; j++) wrong += in[j] != 'x';
                    at += (size_t)got;
                }
            }
            exchanges += up;
        }
        if (rand_r(&seed) % 4 == 0) CALL(shutdown(fd, SHUT_WR));
        CALL(close(fd));
    }
    return 0;
}

// As much as fits, both ways at once.
static int client_of_streams(const uint16_t ports[2], unsigned seed) {
    static char buffer[200000];
    begin("streams");
    memset(buffer, 'x', sizeof buffer);
    while (now() < over) {
        int fd = reach(ports[rand_r(&seed) % 2]);
        if (fd < 0) continue;
        fcntl(fd, F_SETFL, O_NONBLOCK);
        int64_t end = now() + 100 + rand_r(&seed) % 1500, heard = now();
        bool up = true;
        while (up && now() < end && now() < over && now() - heard < LIMIT) {
            struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};
            if (CALL(poll(&p, 1, 50)) <= 0) continue;
            ssize_t r = p.revents & POLLOUT ? CALL(send(fd, buffer, 1 + (size_t)rand_r(&seed) % sizeof buffer, MSG_NOSIGNAL)) : -1;
            if (p.revents & POLLOUT && r <= 0 && errno != EAGAIN) up = !lost(r);
            r = up ? CALL(recv(fd, buffer, sizeof buffer, 0)) : -1;
            if (r > 0) heard = now(), exchanges++, memset(buffer, 'x', (size_t)r);
            else if (up && (r == 0 || errno != EAGAIN)) up = !lost(r);
        }
        CALL(close(fd));
    }
    return 0;
}

// Connections that were made while all was well, or not so well, and on which nothing happens any more: who waits there sleeps.
static int client_of_idle(const uint16_t ports[2], unsigned seed) {
    int fds[24];
    char text[64] = {0};
    begin("idle");
    int set = epoll_create1(0);
    for (int i = 0; i < 24; i++) {
        struct epoll_event e = {.events = EPOLLIN | (i % 3 ? 0 : EPOLLET), .data.u32 = (uint32_t)i};
        if ((fds[i] = reach(ports[rand_r(&seed) % 2])) < 0) continue;
        for (int j = 0; j < 12 && CALL(send(fds[i], text, sizeof text, MSG_NOSIGNAL)) > 0 && CALL(recv(fds[i], text, sizeof text, 0)) > 0; j++) exchanges++;
        epoll_ctl(set, EPOLL_CTL_ADD, fds[i], &e);
    }
    while (goes_on()) {
        struct epoll_event events[8];
        int n = (int)CALL(epoll_wait(set, events, 8, 100));
        for (int i = 0; i < n; i++) {
            int *fd = &fds[events[i].data.u32 % 24];
            ssize_t got = *fd < 0 ? -1 : CALL(recv(*fd, text, sizeof text, MSG_DONTWAIT));
            if (*fd >= 0 && got <= 0 && (got == 0 || errno != EAGAIN)) {
                lost(got);
                CALL(close(*fd));
                *fd = -1;
            }
        }
    }
    for (int i = 0; i < 24; i++)
        if (fds[i] >= 0) CALL(close(fds[i]));
    return 0;
}

static void report(void) {
    static char line[400];
    int n = snprintf(line, sizeof line, "{\"role\": \"%s\", \"exchanges\": %lu, \"resets\": %lu, \"limits\": %lu, \"ends\": %lu, \"refused\": %lu, \"wrong\": %lu, \"idle_percent\": %ld}\n",
                     role, exchanges, resets, limits, ends, refused, wrong, idle_percent);
    if (write(1, line, (size_t)n) != n) _exit(5);
}

static int listener_at(uint16_t *port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (void *)&at, sizeof at) != 0 || listen(fd, 128) != 0 || getsockname(fd, (void *)&at, &len) != 0) perror("listen"), exit(2);
    *port = at.sin_port;
    return fd;
}

int main(int argc, char **argv) {
    uint16_t ports[2];
    int listeners[2] = {listener_at(&ports[0]), listener_at(&ports[1])};
    over = now() + (argc > 1 ? atoll(argv[1]) : 5) * 1000;
    pid_t children[6];
    for (int i = 0; i < 6; i++) {
        if ((children[i] = fork()) != 0) continue;
        int status = i == 0 ? server_of_threads(listeners[0])
                   : i == 1 ? server_of_events(listeners[1])
                   : i == 2 ? client_of_streams(ports, 7)
                   : i == 3 ? client_of_idle(ports, 9)
                            : client_of_many(ports, (unsigned)i);
        report();
        // Random switches wake whom they like, for ever.
        if (idle_percent > 50 && getenv("GINNEL_CHAOS") == NULL) fprintf(stderr, "%s (%d) does not sleep: %ld %%\n", role, getpid(), idle_percent), status = 6;
        exit(status);
    }
    int bad = 0;
    for (int i = 0; i < 6; i++) {
        int status = 0;
        waitpid(children[i], &status, 0);
        if (status != 0) {
            fprintf(stderr, "child %d (pid %d) ended with status %x\n", i, children[i], status);
            bad = 1;
        }
    }
    return bad;
}
