// What one end of the test knows. All of it lies in a shared mapping of a memfd, so a forked child, an exec'd image and a
// helper process continue exactly where the one before them stood.
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "stream.h"

enum { CONNS = 3, NAMES = 4, BUFFER = 300 * 1024 };
enum { IN = 1, OUT = 2 };

// Everything counted, for the summary and for the proof that nothing was left out.
#define COUNTED(X) \
    X(sessions) X(phases) X(checkpoints) X(bytes) \
    X(read) X(readv) X(recv) X(recvfrom) X(recvmsg) X(recvmmsg) X(read_chk) X(recv_chk) X(recvfrom_chk) X(peek) X(peekmsg) \
    X(trunc) X(waitall) X(fionread) X(splice_in) X(rcvtimeo) \
    X(write) X(writev) X(send) X(sendto) X(sendmsg) X(sendmmsg) X(sendfile) X(sendfile64) X(more) X(splice_out) \
    X(poll) X(ppoll) X(select) X(pselect) X(poll_chk) X(ppoll_chk) X(epoll_wait) X(epoll_pwait) X(epoll_pwait2) \
    X(level) X(edge) X(oneshot) X(exclusive) X(nested) X(nested_poll) X(several) X(kept_level) X(kept_edge) X(mixed) X(spin) \
    X(single) X(pingpong) X(thread_each) X(fork_each) X(fork_both) X(alternate) X(fork_exec) X(exec_self) X(passed) \
    X(passed_bare) X(sharing_threads) X(storms) X(short_read) X(short_write) X(again_read) X(again_write) X(timeouts) X(spurious) X(lone)
enum {
#define X(name) C_##name,
    COUNTED(X)
#undef X
        COUNTERS
};
static const char *const counter_names[] = {
#define X(name) #name,
    COUNTED(X)
#undef X
};

// A session in which each connection is slept on in one way, by one sleeper: most programs are so, and are woken otherwise than sockets that several sleep on.
enum lone { LONE_NOT, LONE_THREAD, LONE_LEVEL, LONE_EDGE, LONES };

struct conn {
    int fd[NAMES];  // the socket and its duplicates; [0] is the one registered in epoll sets
    int names;
    bool nonblock;
    uint64_t rkey, wkey;
    _Atomic uint64_t rpos, wpos;  // what has passed
    uint64_t rend, wend;          // where the present phase ends
};

struct end {
    uint64_t seed, rng;
    int worker, role, threaded, use_splice;  // role 0 listens, 1 connects
    int self, side, helper, bare, listener;  // descriptors
    char address[64];
    uint64_t until_ns, corrupt_after, patience_ms;
    uint64_t session, barrier;
    int phase, phases, stage, nconn, message;
    enum lone lone;
    int level, edge, nest;  // epoll sets that live as long as the session; -1 where it has none
    struct conn conn[CONNS];
    _Atomic uint64_t count[COUNTERS];
};

// One thread or process that moves bytes of an end.
struct actor {
    struct end *e;
    uint64_t rng;
    int fd[CONNS][NAMES], names[CONNS];
    bool alone;  // nobody else reads or writes the directions this actor handles: readiness reports are exact
    bool keeps;  // may use the session's epoll sets
    bool may_exec;
    uint8_t *buf, *want;
};

static atomic_int storms;        // interval timers running in this process
static atomic_int storms_begun;  // how often one was started

static inline void counted(struct end *e, int c) { atomic_fetch_add_explicit(&e->count[c], 1, memory_order_relaxed); }

static inline uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// A system call that no hook sees: the C library's syscall() is hooked too.
static inline long past_the_shim(long number, long a, long b, long c, long d, long e) {
#ifdef __x86_64__
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
    return result;
#else
    return syscall(number, a, b, c, d, e);
#endif
}

// Says on standard error how each connection stands, by the kernel's word (system calls made directly) and the library's.
static void show_connections(const struct end *e) {
    char text[512];
    for (int i = 0; e && i < e->nconn; i++) {
        const struct conn *c = &e->conn[i];
        int kernel = -1, hooked = -1, unsent = -1;
        past_the_shim(SYS_ioctl, c->fd[0], FIONREAD, (long)&kernel, 0, 0);
        past_the_shim(SYS_ioctl, c->fd[0], SIOCOUTQ, (long)&unsent, 0, 0);
        ioctl(c->fd[0], FIONREAD, &hooked);
        struct pollfd p = {.fd = c->fd[0], .events = POLLIN | POLLOUT | POLLRDHUP};
        struct timespec zero = {0};
        past_the_shim(SYS_ppoll, (long)&p, 1, (long)&zero, 0, 8);
        int n = snprintf(text, sizeof text,
                         "switching:   %s, connection %d fd %d: read %llu of %llu, written %llu of %llu; FIONREAD %d; kernel's FIONREAD %d, "
                         "SIOCOUTQ %d, revents %#x%s\n",
                         e->role ? "client" : "server", i, c->fd[0], (unsigned long long)c->rpos, (unsigned long long)c->rend,
                         (unsigned long long)c->wpos, (unsigned long long)c->wend, hooked, kernel, unsent, (unsigned)p.revents,
                         c->nonblock ? ", non-blocking" : "");
        (void)!write(2, text, (size_t)n);
    }
}

// Ends the test with what is known of the place. With SWITCHING_STOP set the process stops instead, for a debugger.
static __attribute__((noreturn, format(printf, 2, 3))) void fail(const struct end *e, const char *format, ...) {
    char text[1024];
    int at = 0;
    if (e)
        at = snprintf(text, sizeof text, "switching: FAILED seed=%llu worker=%d %s%s pid=%d session=%llu phase=%d stage=%d: ",
                      (unsigned long long)e->seed, e->worker, e->role ? "client" : "server", e->threaded ? " threaded" : "",
                      getpid(), (unsigned long long)e->session, e->phase, e->stage);
    else
        at = snprintf(text, sizeof text, "switching: FAILED pid=%d: ", getpid());
    va_list args;
    va_start(args, format);
    at += vsnprintf(text + at, sizeof text - (size_t)at - 1, format, args);
    va_end(args);
    if (at > (int)sizeof text - 2) at = sizeof text - 2;
    text[at++] = '\n';
    (void)!write(2, text, (size_t)at);
    show_connections(e);
    if (getenv("SWITCHING_STOP")) raise(SIGSTOP);
    _exit(1);
}

// A readiness report with nothing behind it. Linux allows itself that (select(2), BUGS), so a program must bear it; but it must be rare. With SWITCHING_STRICT
// in the environment the first one ends the test.
#define spurious(e, ...)                                                                  \
    do {                                                                                  \
        counted(e, C_spurious);                                                           \
        if (getenv("SWITCHING_STRICT") || ++spurious_seen > SPURIOUS_MOST) fail(e, __VA_ARGS__); \
    } while (0)
enum { SPURIOUS_MOST = 20 };
static int spurious_seen;

static inline int any_fd(struct actor *a, int k) { return a->fd[k][below(&a->rng, (uint64_t)a->names[k])]; }
