// What the small behaviour tests share. Each is a complete program: it checks what the kernel promises, says what it saw on
// standard output (the same words with and without the shim), and ends with status 0 only if all of it held.
#pragma once
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE = 20000 };  // ms: nothing that is to happen takes as long, on any machine

extern char **environ;

static __attribute__((unused, format(printf, 1, 2))) void say(const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text - 1, format, args);
    va_end(args);
    text[n++] = '\n';
    if (write(1, text, (size_t)n) != n) _exit(99);
}

#define CHECK(condition)                                                                                            \
    do {                                                                                                            \
        int error_ = errno;                                                                                         \
        if (!(condition)) {                                                                                         \
            fprintf(stderr, "%s:%d: pid %d: not so: %s (errno %d, %s)\n", __FILE__, __LINE__, getpid(), #condition, error_, \
                    strerror(error_));                                                                              \
            fflush(NULL);                                                                                           \
            _exit(1);                                                                                               \
        }                                                                                                           \
    } while (0)

#define IS(value, expected)                                                                                         \
    do {                                                                                                            \
        errno = 0;                                                                                                  \
        long value_ = (long)(value), expected_ = (long)(expected);                                                  \
        if (value_ != expected_) {                                                                                  \
            fprintf(stderr, "%s:%d: pid %d: %s is %ld (errno %d, %s), not %ld\n", __FILE__, __LINE__, getpid(), #value, value_, \
                    errno, strerror(errno), expected_);                                                             \
            fflush(NULL);                                                                                           \
            _exit(1);                                                                                               \
        }                                                                                                           \
    } while (0)

// The call fails with this errno.
#define FAILS(call, error)  \
    do {                    \
        IS(call, -1);       \
        CHECK(errno == (error)); \
    } while (0)

static inline int64_t clock_ms(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static inline int64_t now_ms(void) { return clock_ms(CLOCK_MONOTONIC); }

static inline void sleep_ms(int ms) { usleep((useconds_t)ms * 1000); }

static inline uint8_t pattern(size_t at, int salt) { return (uint8_t)((at * 2654435761u >> 13) + at / 251 + (size_t)salt * 91); }

static inline void fill(uint8_t *to, size_t at, size_t n, int salt) {
    for (size_t i = 0; i < n; i++) to[i] = pattern(at + i, salt);
}

static inline void same(const uint8_t *got, size_t at, size_t n, int salt) {
    for (size_t i = 0; i < n; i++) {
        if (got[i] == pattern(at + i, salt)) continue;
        fprintf(stderr, "pid %d: byte %zu of the stream (%zu of %zu received) is %02x, not %02x; then", getpid(), at + i, i, n, got[i], pattern(at + i, salt));
        for (size_t j = i + 1; j < n && j < i + 16; j++) fprintf(stderr, " %02x", got[j]);
        fprintf(stderr, ", not");
        for (size_t j = i + 1; j < n && j < i + 16; j++) fprintf(stderr, " %02x", pattern(at + j, salt));
        fprintf(stderr, "\n");
        CHECK(got[i] == pattern(at + i, salt));
    }
}

static inline void put_all(int fd, const void *from, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t put = send(fd, (const char *)from + at, n - at, MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0 && errno == EAGAIN) {
            struct pollfd p = {.fd = fd, .events = POLLOUT};
            CHECK(poll(&p, 1, PATIENCE) == 1);
            continue;
        }
        CHECK(put > 0);
        at += (size_t)put;
    }
}

static inline void get_all(int fd, void *to, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t got = recv(fd, (char *)to + at, n - at, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) {
            struct pollfd p = {.fd = fd, .events = POLLIN};
            CHECK(poll(&p, 1, PATIENCE) == 1);
            continue;
        }
        CHECK(got > 0);
        at += (size_t)got;
    }
}

// `n` bytes of the pattern, sent or received and compared.
static inline void put_pattern(int fd, size_t n, int salt) {
    uint8_t part[4096];
    for (size_t at = 0; at < n; at += sizeof part) {
        size_t len = n - at < sizeof part ? n - at : sizeof part;
        fill(part, at, len, salt);
        put_all(fd, part, len);
    }
}

static inline void get_pattern(int fd, size_t n, int salt) {
    uint8_t part[4096];
    for (size_t at = 0; at < n; at += sizeof part) {
        size_t len = n - at < sizeof part ? n - at : sizeof part;
        get_all(fd, part, len);
        same(part, at, len, salt);
    }
}

// Enough exchanges for a connection to be known, met and upgraded where that is to happen. The pauses let both ends count the
// same bytes also where the machine is busy with other things.
enum { ROUNDS = 60 };
static inline void warm_up(int fd, bool first) {
    uint8_t text[16];
    for (int i = 0; i < ROUNDS; i++) {
        if (first && i % 4 == 3) poll(NULL, 0, 1);
        if (first) put_pattern(fd, sizeof text, i), get_pattern(fd, sizeof text, i + 1);
        else get_pattern(fd, sizeof text, i), put_pattern(fd, sizeof text, i + 1);
    }
}

static inline int listen_on(struct sockaddr_in *at) {
    socklen_t len = sizeof *at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK(fd >= 0);
    IS(bind(fd, (void *)at, len), 0);
    IS(listen(fd, 128), 0);
    IS(getsockname(fd, (void *)at, &len), 0);
    return fd;
}

// At an address that was agreed on, also right after another has listened there.
static inline int listen_at(const struct sockaddr_in *at, int backlog) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    CHECK(fd >= 0);
    IS(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
    IS(bind(fd, (const void *)at, sizeof *at), 0);
    IS(listen(fd, backlog), 0);
    return fd;
}

static inline int connect_to(const struct sockaddr_in *at) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    CHECK(fd >= 0);
    IS(connect(fd, (const void *)at, sizeof *at), 0);
    IS(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one), 0);
    return fd;
}

static inline int accept_from(int listener) {
    int fd = accept(listener, NULL, NULL), one = 1;
    CHECK(fd >= 0);
    IS(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one), 0);
    return fd;
}

static inline void warm_pair(int a, int b) {
    for (int i = 0; i < ROUNDS; i++) {
        put_pattern(a, 16, i), get_pattern(b, 16, i);
        put_pattern(b, 16, i), get_pattern(a, 16, i);
    }
}

// Two ends of one connection in this process.
static inline void pair_here(int ends[2]) {
    struct sockaddr_in at;
    int listener = listen_on(&at);
    ends[0] = connect_to(&at);
    ends[1] = accept_from(listener);
    close(listener);
    warm_pair(ends[0], ends[1]);
}

// One end here, the other in a child that runs `peer`; and a way for the two to agree on when.
static int side = -1;
static pid_t other;

static inline void tell(void) { CHECK(write(side, "", 1) == 1); }

static inline void hear(void) {
    char c;
    ssize_t n;
    do n = read(side, &c, 1);
    while (n < 0 && errno == EINTR);
    CHECK(n == 1);
}

static inline int with_peer_and(void (*peer)(int fd), bool warm) {
    struct sockaddr_in at;
    int listener = listen_on(&at), sides[2];
    IS(socketpair(AF_UNIX, SOCK_STREAM, 0, sides), 0);
    other = fork();
    CHECK(other >= 0);
    if (other == 0) {
        close(listener), close(sides[0]);
        side = sides[1];
        int fd = connect_to(&at);
        if (warm) warm_up(fd, true);
        peer(fd);
        // Not before the other end is through: the end of file would be one more thing to report.
        while (read(side, &(char){0}, 1) > 0) {}
        exit(0);
    }
    close(sides[1]);
    side = sides[0];
    int fd = accept_from(listener);
    close(listener);
    if (warm) warm_up(fd, false);
    return fd;
}

static inline int with_peer(void (*peer)(int fd)) { return with_peer_and(peer, true); }

// Waits for a thread's end, and returns what it returned.
static inline void *joined(pthread_t thread) {
    struct timespec end;
    void *result;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PATIENCE / 1000;
    IS(pthread_timedjoin_np(thread, &result, &end), 0);
    return result;
}

// Goes to an empty root directory, without /proc: as root only.
static inline void confine_to_nothing(void) {
    char root[] = "/tmp/ginnel-test-root-XXXXXX";
    CHECK(mkdtemp(root));
    IS(chdir(root), 0);
    IS(rmdir(root), 0);
    IS(chroot("."), 0);
    CHECK(access("/proc/self/stat", R_OK) < 0);
}

static inline int ended(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0) CHECK(errno == EINTR);
    return status;
}

static inline void peer_ends(void) {
    close(side);
    IS(ended(other), 0);
}

// What poll says of one descriptor, waiting at most `ms` for something to say.
static inline int polled(int fd, int events, int ms) {
    struct pollfd p = {.fd = fd, .events = (short)events};
    int n;
    do n = poll(&p, 1, ms);
    while (n < 0 && errno == EINTR);
    CHECK(n >= 0 && n == (p.revents != 0));
    return p.revents;
}

static inline int epoll_add(int set, int fd, uint32_t events) {
    struct epoll_event ev = {.events = events, .data.fd = fd};
    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &ev);
}

static inline int epoll_mod(int set, int fd, uint32_t events) {
    struct epoll_event ev = {.events = events, .data.fd = fd};
    return epoll_ctl(set, EPOLL_CTL_MOD, fd, &ev);
}

// The events of `fd` in `set`, 0 when nothing is reported in `ms`; nothing else may be reported.
static inline uint32_t epolled(int set, int fd, int ms) {
    struct epoll_event ev[4];
    int n;
    do n = epoll_wait(set, ev, 4, ms);
    while (n < 0 && errno == EINTR);
    CHECK(n == 0 || (n == 1 && ev[0].data.fd == fd));
    return n ? ev[0].events : 0;
}

// Passes a descriptor over a unix socket (SCM_RIGHTS).
static inline void pass(int over, int fd) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    memset(&control, 0, sizeof control);
    struct msghdr m = {.msg_iov = &(struct iovec){"", 1}, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    IS(sendmsg(over, &m, 0), 1);
}

// Takes what `pass` has sent.
static inline int passed_over(int over) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    char byte;
    struct msghdr m = {.msg_iov = &(struct iovec){&byte, 1}, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    int fd;
    IS(recvmsg(over, &m, 0), 1);
    CHECK(CMSG_FIRSTHDR(&m));
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    return fd;
}

static inline void nonblocking(int fd) { IS(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0); }

static inline void when_readable(int fd) { CHECK(polled(fd, POLLIN, PATIENCE) & POLLIN); }

static inline int open_descriptors(void) {
    int n = 0;
    for (int fd = 0; fd < 4096; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

// What FIONREAD or its like says, once it is what is expected.
static inline int queue_size(int fd, unsigned long request, int expected) {
    int n = -1;
    for (int64_t end = now_ms() + PATIENCE; n != expected && now_ms() < end; sleep_ms(1)) IS(ioctl(fd, request, &n), 0);
    return n;
}

// All that the kernel knows of: those of a library, which the program does not see, included, and the one that looks.
static inline int descriptors(void) {
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    CHECK(dir);
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}
