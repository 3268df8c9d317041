// The random switching test's program pair: two ends exchange known pseudo-random streams over one to three TCP connections,
// by a random mix of all calls, sizes and ways of waiting, in threads, forked children, exec'd images and processes that were
// passed the socket. Every byte and every readiness report is checked. It knows nothing of Ginnel and holds on plain TCP.
//
// Both ends walk through sessions (new connections) of phases (so many bytes each way, agreed from the seed), and meet over a
// side channel between them: then nothing may be readable, and what was sent and acknowledged there must be reported.
#include "engine.h"

#include <arpa/inet.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/un.h>

extern char **environ;

// ---- the side channel -----------------------------------------------------------------------------------------------------

static __attribute__((noreturn)) void other_end_gone(struct end *e) {
    fprintf(stderr, "switching: worker %d %s: the other end is gone\n", e->worker, e->role ? "client" : "server");
    show_connections(e);
    _exit(4);
}

static void side_send(struct end *e, uint64_t value) {
    ssize_t n;
    do n = send(e->side, &value, sizeof value, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n != sizeof value) other_end_gone(e);
}

static uint64_t side_receive(struct end *e) {
    uint64_t value, from = now_ns();
    size_t have = 0;
    while (have < sizeof value) {
        struct pollfd p = {.fd = e->side, .events = POLLIN};
        int n = poll(&p, 1, 1000);
        if (n == 0 && now_ns() - from > 4 * e->patience_ms * 1000000u) fail(e, "the other end does not come to the meeting");
        if (n <= 0) continue;
        ssize_t got = recv(e->side, (char *)&value + have, sizeof value - have, 0);
        if (got == 0 || (got < 0 && errno != EINTR)) other_end_gone(e);
        if (got > 0) have += (size_t)got;
    }
    return value;
}

// Both ends arrive; returns whether either wants to stop.
static bool meet(struct end *e) {
    uint64_t id = ++e->barrier, stop = now_ns() >= e->until_ns;
    side_send(e, id << 1 | stop);
    uint64_t theirs = side_receive(e);
    if (theirs >> 1 != id) fail(e, "the ends meet at different places: %llu and %llu", (unsigned long long)id, (unsigned long long)(theirs >> 1));
    return stop || theirs & 1;
}

// ---- ways to move one phase's bytes ------------------------------------------------------------------------------------------

struct task {
    struct actor *a;
    unsigned mask;
    int k;
    pthread_mutex_t *lock;
};

static void *run_task(void *p) {
    struct task *t = p;
    engine(t->a, t->mask, 0);
    return NULL;
}

static void in_threads(struct end *e) {
    pthread_t threads[2 * CONNS];
    struct task tasks[2 * CONNS];
    int n = 0;
    for (int k = 0; k < e->nconn; k++)
        for (unsigned d = IN; d <= OUT; d <<= 1) tasks[n++] = (struct task){.a = actor_new(e, 1u << k), .mask = d};
    for (int i = 0; i < n; i++)
        if (pthread_create(&threads[i], NULL, run_task, &tasks[i])) fail(e, "pthread_create");
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL), actor_free(tasks[i].a);
}

// Several threads share one direction: the position is theirs under a lock, the waiting is not.
static void *run_sharing(void *p) {
    struct task *t = p;
    struct actor *a = t->a;
    struct waiter w;
    static const enum kind kinds[] = {LEVEL, EDGE, EXCLUSIVE, ONESHOT, NESTED, MIXED};
    uint64_t progress = now_ns();
    unsigned need[CONNS] = {0}, got[CONNS];
    need[t->k] = t->mask;
    waiter_begin(a, &w, kinds[below(&a->rng, 6)], 1u << t->k);
    for (;;) {
        pthread_mutex_lock(t->lock);
        if (!remaining(a->e, t->k, t->mask)) break;
        struct moved m = step(a, t->k, t->mask, false, false, &progress);
        pthread_mutex_unlock(t->lock);
        if (m.n >= 0 && !chance(&a->rng, 8)) continue;
        if (w.kind == EDGE && m.n >= 0) continue;
        if (wait_ready(a, &w, need, got, 20)) continue;
        // Whether the others finished it is seen above; if nobody could go on for long, a wake-up was lost.
        struct conn *c = &a->e->conn[t->k];
        uint64_t at = t->mask == IN ? c->rpos : c->wpos;
        if (at != a->e->seed && now_ns() - progress < a->e->patience_ms * 1000000u) continue;
        stuck(a, &w, need);
    }
    pthread_mutex_unlock(t->lock);
    waiter_end(a, &w);
    return NULL;
}

static void in_sharing_threads(struct end *e) {
    enum { READERS = 2, WRITERS = 2, EACH = READERS + WRITERS };
    pthread_t threads[EACH * CONNS];
    struct task tasks[EACH * CONNS];
    pthread_mutex_t locks[2 * CONNS];
    int n = 0;
    for (int k = 0; k < e->nconn; k++)
        for (int i = 0; i < EACH; i++) {
            unsigned d = i < READERS ? IN : OUT;
            pthread_mutex_t *lock = &locks[2 * k + (d == OUT)];
            pthread_mutex_init(lock, NULL);
            tasks[n] = (struct task){.a = actor_new(e, 1u << k), .mask = d, .k = k, .lock = lock};
            tasks[n++].a->alone = false;
        }
    for (int i = 0; i < n; i++)
        if (pthread_create(&threads[i], NULL, run_sharing, &tasks[i])) fail(e, "pthread_create");
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL), actor_free(tasks[i].a);
}

static __attribute__((noreturn)) void leave_child(struct actor *a) {
    if (chance(&a->rng, 2)) exit(0);
    _exit(0);
}

static void reap(struct end *e, pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) fail(e, "waitpid: %s", strerror(errno));
    if (status == 0) return;
    if (WIFEXITED(status)) _exit(WEXITSTATUS(status));  // it has said why
    fail(e, "a child ended by signal %d", WTERMSIG(status));
}

static pid_t fork_or_fail(struct end *e) {
    pid_t child = fork();
    if (child < 0) fail(e, "fork: %s", strerror(errno));
    return child;
}

static void in_two_processes(struct end *e) {
    struct actor *a = actor_new(e, ~0u), *b = actor_new(e, ~0u);
    unsigned mine = chance(&a->rng, 2) ? IN : OUT;
    pid_t child = fork_or_fail(e);
    if (child == 0) {
        engine(b, mine ^ (IN | OUT), 0);
        leave_child(b);
    }
    engine(a, mine, 0);
    reap(e, child);
    actor_free(a), actor_free(b);
}

static void in_a_child(struct end *e) {
    struct actor *a = actor_new(e, ~0u);
    a->keeps = true;
    engine(a, IN | OUT, (long)below(&a->rng, 20));
    pid_t child = fork_or_fail(e);
    if (child == 0) {
        engine(a, IN | OUT, 0);
        leave_child(a);
    }
    reap(e, child);
    actor_free(a);
}

static void in_turns(struct end *e) {
    int there[2], back[2];
    char turn = 0;
    if (pipe2(there, O_CLOEXEC) || pipe2(back, O_CLOEXEC)) fail(e, "pipe: %s", strerror(errno));
    struct actor *a = actor_new(e, ~0u), *b = actor_new(e, ~0u);
    a->keeps = b->keeps = true;
    pid_t child = fork_or_fail(e);
    struct actor *me = child ? a : b;
    int in = child ? back[0] : there[0], out = child ? there[1] : back[1];
    close(child ? back[1] : there[1]), close(child ? there[0] : back[0]);
    bool mine = child != 0;
    for (;;) {
        ssize_t n = 1;
        if (!mine)
            do n = read(in, &turn, 1);
            while (n < 0 && errno == EINTR);
        if (n != 1 && !all_done(e)) fail(e, "the process that had the turn is gone");
        if (all_done(e)) {
            // End of file would not come where another thread's fork has a copy of the pipe.
            (void)!write(out, &turn, 1);
            break;
        }
        engine(me, IN | OUT, 1 + (long)below(&me->rng, 30));
        mine = false;
        if (write(out, &turn, 1) != 1 && !all_done(e)) fail(e, "the process that has the turn next is gone");
    }
    close(in), close(out);
    if (child == 0) leave_child(me);
    reap(e, child);
    actor_free(a), actor_free(b);
}

static void in_an_image(struct end *e) {
    char state[16], seed[24];
    uint64_t rng = rnd(&e->rng);
    snprintf(state, sizeof state, "%d", e->self);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)rnd(&rng));
    char *args[] = {"switching", "--phase", state, seed, NULL};
    pid_t child = -1;
    switch (below(&rng, 3)) {
    case 0:
        child = fork_or_fail(e);
        if (child == 0) {
            execv("/proc/self/exe", args);
            fail(e, "exec: %s", strerror(errno));
        }
        break;
    case 1:
        child = vfork();
        if (child < 0) fail(e, "vfork: %s", strerror(errno));
        if (child == 0) {
            execv("/proc/self/exe", args);
            _exit(9);
        }
        break;
    default: {
        int error = posix_spawn(&child, "/proc/self/exe", NULL, NULL, args, environ);
        if (error) fail(e, "posix_spawn: %s", strerror(error));
    }
    }
    reap(e, child);
}

struct job {
    uint64_t rng;
    int nconn;
};

static void by_passing(struct end *e, int helper) {
    struct job job = {.rng = rnd(&e->rng), .nconn = e->nconn};
    struct iovec v = {&job, sizeof job};
    union {
        char bytes[CMSG_SPACE(sizeof(int[CONNS]))];
        struct cmsghdr align;
    } control;
    memset(&control, 0, sizeof control);
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)e->nconn)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)e->nconn);
    for (int k = 0; k < e->nconn; k++) memcpy(CMSG_DATA(c) + sizeof(int) * (size_t)k, &e->conn[k].fd[0], sizeof(int));
    if (sendmsg(helper, &m, 0) != sizeof job) fail(e, "passing descriptors: %s", strerror(errno));
    char done;
    ssize_t n;
    do n = read(helper, &done, 1);
    while (n < 0 && errno == EINTR);
    if (n != 1) _exit(1);  // it has said why
    if (!all_done(e)) fail(e, "the helper did not finish");
}

static void serve_as_helper(struct end *e, int from) {
    signal(SIGPIPE, SIG_IGN);
    for (;;) {
        struct job job;
        struct iovec v = {&job, sizeof job};
        union {
            char bytes[CMSG_SPACE(sizeof(int[CONNS]))];
            struct cmsghdr align;
        } control;
        struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        ssize_t n = recvmsg(from, &m, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) exit(0);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        if (n != sizeof job || !c || c->cmsg_len != CMSG_LEN(sizeof(int) * (size_t)job.nconn)) fail(e, "the helper got %zd bytes: %s", n, strerror(errno));
        struct actor *a = actor_new(e, 0);
        a->rng = job.rng;
        for (int k = 0; k < job.nconn; k++) {
            memcpy(&a->fd[k][0], CMSG_DATA(c) + sizeof(int) * (size_t)k, sizeof(int));
            a->names[k] = 1;
            if (chance(&a->rng, 2)) a->fd[k][a->names[k]++] = dup(a->fd[k][0]);
        }
        engine(a, IN | OUT, 0);
        for (int k = 0; k < job.nconn; k++)
            for (int i = 0; i < a->names[k]; i++) close(a->fd[k][i]);
        actor_free(a);
        if (write(from, "", 1) != 1) exit(0);
    }
}

static void on_alarm(int sig) { (void)sig; }

static void storm_begin(struct end *e) {
    int none = 0;
    if (!atomic_compare_exchange_strong(&storms, &none, 1)) return;
    counted(e, C_storms);
    storms_begun++;
    struct sigaction act = {.sa_handler = on_alarm, .sa_flags = chance(&e->rng, 2) ? SA_RESTART : 0};
    sigaction(SIGALRM, &act, NULL);
    struct itimerval every = {{0, 1000 + (long)below(&e->rng, 3000)}, {0, 500}};
    setitimer(ITIMER_REAL, &every, NULL);
}

// Moves the bytes up to each connection's ends, in some way.
static void transfer(struct end *e, bool small) {
    bool storm = chance(&e->rng, small ? 300 : 12);
    if (storm) storm_begin(e);
    uint64_t way = e->lone ? 99 : below(&e->rng, small ? 1600 : 100);
    if (way < 12) counted(e, C_thread_each), in_threads(e);
    else if (way < 20) counted(e, C_fork_each), in_two_processes(e);
    else if (way < 26) counted(e, C_fork_both), in_a_child(e);
    else if (way < 33) counted(e, C_alternate), in_turns(e);
    else if (way < 39) counted(e, C_fork_exec), in_an_image(e);
    else if (way < 46) counted(e, C_passed), by_passing(e, e->helper);
    else if (way < 47) counted(e, C_passed_bare), by_passing(e, e->bare);
    else if (way < 56) counted(e, C_sharing_threads), in_sharing_threads(e);
    else {
        counted(e, C_single);
        struct actor *a = actor_new(e, ~0u);
        a->keeps = true;
        a->may_exec = !e->threaded && !e->lone;
        if (a->may_exec && !small && chance(&a->rng, 12)) exec_self(a);
        engine(a, IN | OUT, 0);
        actor_free(a);
    }
    if (storm) storm_end();
    if (!all_done(e)) fail(e, "bytes are left");
}

// ---- what must be reported at a meeting ---------------------------------------------------------------------------------------

// Asks in one way whether connection `k` is readable, waiting at most `ms`.
static bool readable(struct actor *a, int k, int way, int ms) {
    struct end *e = a->e;
    unsigned need[CONNS] = {0}, got[CONNS] = {0};
    struct epoll_event ev[CONNS + 2];
    struct waiter w;
    need[k] = IN;
    switch (way) {
    case 0: case 1: {
        waiter_begin(a, &w, MIXED, 1u << k);
        return wait_ready(a, &w, need, got, ms);
    }
    case 2: case 3: case 4: {
        static const enum kind kinds[] = {LEVEL, ONESHOT, EXCLUSIVE, NESTED, NESTED_POLL, SEVERAL};
        waiter_begin(a, &w, kinds[below(&a->rng, 6)], 1u << k);
        bool yes = wait_ready(a, &w, need, got, ms);
        waiter_end(a, &w);
        return yes;
    }
    case 5: case 6: case 7: {  // the sets that saw all that went before; they hold every connection
        uint64_t end = now_ns() + (uint64_t)ms * 1000000u;
        for (;;) {
            int n = wait_set(a, way == 5 ? e->level : way == 6 ? e->edge : e->nest, ev, CONNS + 2, ms ? 50 : 0);
            if (n < 0 && errno != EINTR) fail(e, "epoll_wait: %s", strerror(errno));
            for (int i = 0; i < n; i++) {
                if (way == 7 ? ev[i].data.u64 == (TAG | 0xff) && ev[i].events == EPOLLIN : ev[i].data.u64 == (TAG | (unsigned)k) && ev[i].events & EPOLLIN) return true;
                if (ev[i].events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) fail(e, "an epoll set reports %#x in the middle of the stream", ev[i].events);
            }
            if (now_ns() >= end) return false;
        }
    }
    case 8: {
        int n = 0;
        if (ioctl(any_fd(a, k), FIONREAD, &n)) fail(e, "FIONREAD: %s", strerror(errno));
        return n > 0;
    }
    default: {
        ssize_t n = recv(any_fd(a, k), a->buf, 1, MSG_PEEK | MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN)) fail(e, "peeking: %zd %s", n, n ? strerror(errno) : "end of file");
        return n > 0;
    }
    }
}
enum { WAYS = 10 };

static int way_of(struct actor *a) {
    switch (a->e->lone) {
    case LONE_THREAD: return chance(&a->rng, 3) ? 8 + (int)below(&a->rng, 2) : 0;
    case LONE_LEVEL: return chance(&a->rng, 3) ? 8 + (int)below(&a->rng, 2) : 5;
    case LONE_EDGE: return 8 + (int)below(&a->rng, 2);
    default: return (int)below(&a->rng, WAYS);
    }
}

// Everything that was sent has been read, and both ends know it.
static void nothing_readable(struct actor *a) {
    for (int k = 0; k < a->e->nconn; k++)
        for (int i = 0; i < 5; i++) {
            int way = way_of(a);
            if (readable(a, k, way, 0)) spurious(a->e, "connection %d is reported readable (way %d) and nothing is there", k, way);
        }
}

// The other end has sent `sizes` and said so: every way must report it, until it is read.
static void all_readable(struct actor *a) {
    struct end *e = a->e;
    // An edge is reported once: whichever connection's it is.
    unsigned edges = 0, wanted = 0;
    for (int k = 0; k < e->nconn; k++)
        if (remaining(e, k, IN)) wanted |= 1u << k;
    uint64_t end = now_ns() + e->patience_ms * 1000000u;
    while ((e->lone == LONE_NOT || e->lone == LONE_EDGE) && (edges & wanted) != wanted) {
        struct epoll_event ev[CONNS + 2];
        int n = wait_set(a, e->edge, ev, 1 + (int)below(&a->rng, CONNS), 100);
        for (int i = 0; i < n; i++)
            if (ev[i].events & EPOLLIN) edges |= 1u << (ev[i].data.u64 & 0xffff);
        if (now_ns() > end) fail(e, "no edge was reported for connections %#x, for which data was sent", wanted & ~edges);
    }
    if (edges & ~wanted) fail(e, "edges on connections %#x, on which nothing was sent", edges & ~wanted);
    for (int k = 0; k < e->nconn; k++) {
        if (!(wanted & 1u << k)) continue;
        for (int i = 0; i < 5; i++) {
            // The first way waits, as the edges have been waited for.
            int way = i == 0 && e->lone == LONE_THREAD ? 0 : i == 0 && e->lone == LONE_LEVEL ? 5 : way_of(a);
            if (way == 6) continue;
            if (!readable(a, k, way, (int)e->patience_ms)) fail(e, "connection %d is not reported readable (way %d) though data was sent", k, way);
        }
        int want = (int)(e->conn[k].rend - e->conn[k].rpos), n = 0;
        for (;;) {  // all of it is on this side; TCP may take a moment to say so
            if (ioctl(any_fd(a, k), FIONREAD, &n)) fail(e, "FIONREAD: %s", strerror(errno));
            if (n == want) break;
            if (n > want || now_ns() > end) fail(e, "FIONREAD says %d where %d are", n, want);
            usleep(100);
        }
    }
}

static void checkpoint(struct end *e, uint64_t shared) {
    counted(e, C_checkpoints);
    struct actor *a = actor_new(e, ~0u);
    nothing_readable(a);
    meet(e);
    for (int k = 0; k < e->nconn; k++) {
        uint64_t sizes[2] = {below(&shared, 3) ? 1 + below(&shared, 1000) : 0, below(&shared, 3) ? 1 + below(&shared, 1000) : 0};
        e->conn[k].wend += sizes[e->role], e->conn[k].rend += sizes[!e->role];
        uint64_t progress = now_ns();
        // Few bytes, all acknowledged: they fit. Not all calls take them at once (MSG_MORE, say), so in a loop.
        while (remaining(e, k, OUT)) step(a, k, OUT, false, true, &progress);
    }
    meet(e);
    all_readable(a);
    engine(a, IN, 0);
    nothing_readable(a);
    actor_free(a);
    meet(e);
}

// ---- sessions ---------------------------------------------------------------------------------------------------------------

static socklen_t parse_address(const char *text, struct sockaddr_storage *to) {
    struct sockaddr_in6 *v6 = (void *)to;
    struct sockaddr_in *v4 = (void *)to;
    memset(to, 0, sizeof *to);
    if (strchr(text, ':') && inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        return sizeof *v6;
    }
    if (inet_pton(AF_INET, text, &v4->sin_addr) != 1) {
        fprintf(stderr, "switching: %s is no address\n", text);
        exit(2);
    }
    v4->sin_family = AF_INET;
    return sizeof *v4;
}

static void set_port(struct sockaddr_storage *s, uint16_t port) { ((struct sockaddr_in *)s)->sin_port = port; }  // at one place in both

static int connect_one(struct end *e, uint16_t port) {
    struct sockaddr_storage to;
    socklen_t len = parse_address(e->address, &to);
    set_port(&to, port);
    int later = chance(&e->rng, 2);
    int fd = socket(to.ss_family, SOCK_STREAM | (later ? SOCK_NONBLOCK : 0), 0);
    if (fd < 0) fail(e, "socket: %s", strerror(errno));
    if (connect(fd, (void *)&to, len)) {
        if (!later || errno != EINPROGRESS) fail(e, "connect: %s", strerror(errno));
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        if (poll(&p, 1, (int)e->patience_ms) != 1 || p.revents != POLLOUT) fail(e, "connecting: revents %#x", p.revents);
        int error = -1;
        socklen_t size = sizeof error;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) || error) fail(e, "SO_ERROR %d", error);
    }
    return fd;
}

static int accept_one(struct end *e) {
    if (chance(&e->rng, 2)) {
        struct pollfd p = {.fd = e->listener, .events = POLLIN};
        if (poll(&p, 1, (int)e->patience_ms) != 1) fail(e, "nobody connects");
    }
    struct sockaddr_storage from;
    socklen_t len = sizeof from;
    int fd = chance(&e->rng, 2) ? accept(e->listener, (void *)&from, &len) : accept4(e->listener, NULL, NULL, chance(&e->rng, 2) ? SOCK_NONBLOCK : 0);
    if (fd < 0) fail(e, "accept: %s", strerror(errno));
    return fd;
}

static void session_begin(struct end *e, uint64_t shared) {
    counted(e, C_sessions);
    e->phase = e->message = 0;
    e->phases = 1 + (int)below(&shared, 24);
    e->nconn = 1 + (int)below(&shared, CONNS);
    if (below(&shared, 2)) e->nconn = 1;
    struct sockaddr_storage at;
    socklen_t len = sizeof at;
    if (e->role == 0) {
        len = parse_address(e->address, &at);
        int one = 1;
        e->listener = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        setsockopt(e->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (e->listener < 0 || bind(e->listener, (void *)&at, len) || listen(e->listener, 16)) fail(e, "listening on %s: %s", e->address, strerror(errno));
        len = sizeof at;
        getsockname(e->listener, (void *)&at, &len);
        side_send(e, ((struct sockaddr_in *)&at)->sin_port);
    }
    uint16_t port = e->role == 1 ? (uint16_t)side_receive(e) : 0;
    for (int k = 0; k < e->nconn; k++) {
        struct conn *c = &e->conn[k];
        int fd = e->role ? connect_one(e, port) : accept_one(e), one = 1;
        if (below(&shared, 8)) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        int small = 32768 << below(&shared, 4);
        if (below(&shared, 3) == 0) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
        c->fd[0] = fd;
        c->names = 1 + (int)below(&e->rng, NAMES);
        for (int i = 1; i < c->names; i++) {
            int to;
            switch (below(&e->rng, 4)) {
            case 0: to = dup(fd); break;
            case 1: to = fcntl(fd, F_DUPFD, 10 + (int)below(&e->rng, 50)); break;
            default: to = fcntl(fd, F_DUPFD, 3);
                if (to >= 0 && chance(&e->rng, 2)) to = dup2(fd, to);  // over itself
                else if (to >= 0) to = dup3(fd, to, 0);
            }
            if (to < 0) fail(e, "dup: %s", strerror(errno));
            c->fd[i] = to;
        }
        c->nonblock = (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0;
        c->rpos = c->wpos = c->rend = c->wend = 0;
        uint64_t key = mix2(mix2(e->seed, e->session), (uint64_t)(e->worker * CONNS + k));
        c->wkey = mix2(key, (uint64_t)e->role), c->rkey = mix2(key, !e->role);
    }
    if (e->role == 0) close(e->listener);
    e->lone = chance(&e->rng, 2) ? LONE_NOT : (enum lone)below(&e->rng, LONES);
    if (e->lone) counted(e, C_lone);
    // Not close-on-exec: these are found again by the next image.
    e->level = e->lone == LONE_NOT || e->lone == LONE_LEVEL ? epoll_create1(0) : -1;
    e->edge = e->lone == LONE_NOT || e->lone == LONE_EDGE ? epoll_create1(0) : -1;
    e->nest = e->lone == LONE_NOT ? epoll_create1(0) : -1;
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = TAG | 0xff};
    bool ok = e->nest < 0 || !epoll_ctl(e->nest, EPOLL_CTL_ADD, e->level, &ev);
    for (int k = 0; k < e->nconn; k++) {
        ev = (struct epoll_event){.events = EPOLLIN, .data.u64 = TAG | (unsigned)k};
        ok &= e->level < 0 || !epoll_ctl(e->level, EPOLL_CTL_ADD, e->conn[k].fd[0], &ev);
        ev.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
        ok &= e->edge < 0 || !epoll_ctl(e->edge, EPOLL_CTL_ADD, e->conn[k].fd[0], &ev);
    }
    if (!ok) fail(e, "epoll_ctl: %s", strerror(errno));
}

static void expect_end(struct actor *a, int k, bool both) {  // both: this end's own direction was shut down too
    struct end *e = a->e;
    // Waits for POLLRDHUP alone: for a moment while the kernel takes a FIN in, it says POLLIN without it.
    struct pollfd p = {.fd = any_fd(a, k), .events = POLLRDHUP};
    int n;
    do n = poll(&p, 1, (int)e->patience_ms);
    while (n < 0 && errno == EINTR);
    if (n != 1 || (p.revents & ~(both ? POLLHUP : 0)) != POLLRDHUP) fail(e, "end of file on connection %d: poll %d, revents %#x", k, n, (unsigned)p.revents);
    p.events |= POLLIN;
    n = poll(&p, 1, 0);
    if (n != 1 || p.revents != (POLLIN | POLLRDHUP | (both ? POLLHUP : 0))) fail(e, "end of file on connection %d: poll %d, revents %#x", k, n, (unsigned)p.revents);
    for (int i = 0; i < 3; i++) {
        ssize_t got = recv(any_fd(a, k), a->buf, 1 + below(&a->rng, 100), below(&a->rng, 2) ? MSG_DONTWAIT : 0);
        if (got != 0) fail(e, "end of file expected on connection %d, recv says %zd (%s)", k, got, got < 0 ? strerror(errno) : "bytes");
    }
}

// One direction to its end, where the other is or may soon be closed.
static void finish_direction(struct actor *a, int k, unsigned direction) {
    uint64_t progress = now_ns();
    while (remaining(a->e, k, direction)) {
        if (step(a, k, direction, false, true, &progress).n >= 0) continue;
        struct pollfd p = {.fd = any_fd(a, k), .events = direction == IN ? POLLIN : POLLOUT};
        if (poll(&p, 1, (int)a->e->patience_ms) == 0) fail(a->e, "lost wake-up: connection %d, direction %u, while closing", k, direction);
    }
}

static void close_all(struct end *e) {
    for (int k = 0; k < e->nconn; k++)
        while (e->conn[k].names > 0)
            if (close(e->conn[k].fd[--e->conn[k].names])) fail(e, "close: %s", strerror(errno));
}

// The session's end. Bytes may be in flight here: none of them may be lost, and neither side may see a reset.
static void session_end(struct end *e, uint64_t shared) {
    struct actor *a = actor_new(e, ~0u);
    int how = (int)below(&shared, 4), first = (int)below(&shared, 2);
    uint64_t size = below(&shared, 4) ? 1 + below(&shared, 300000) : 0;
    if (e->level >= 0) close(e->level);
    if (e->edge >= 0) close(e->edge);
    if (e->nest >= 0) close(e->nest);
    e->level = e->edge = e->nest = -1;
    switch (how) {
    case 0:  // half-closed by one end, after its last bytes; the other sends on
        for (int k = 0; k < e->nconn; k++) {
            struct conn *c = &e->conn[k];
            if (e->role == first) c->wend += size;
            else c->rend += size;
        }
        if (e->role == first) engine(a, OUT, 0);
        else for (int k = 0; k < e->nconn; k++) finish_direction(a, k, IN);
        for (int k = 0; k < e->nconn && e->role == first; k++)
            if (shutdown(any_fd(a, k), SHUT_WR)) fail(e, "shutdown: %s", strerror(errno));
        for (int k = 0; k < e->nconn && e->role != first; k++) expect_end(a, k, false);
        for (int k = 0; k < e->nconn; k++) {
            struct conn *c = &e->conn[k];
            if (e->role != first) c->wend += size;
            else c->rend += size;
        }
        // Each end has one direction left; the other is at its end and must not be reported.
        for (int k = 0; k < e->nconn; k++) finish_direction(a, k, e->role == first ? IN : OUT);
        if (e->role == first)
            for (int k = 0; k < e->nconn; k++) {
                ssize_t n = send(any_fd(a, k), "x", 1, MSG_NOSIGNAL);
                if (n != -1 || errno != EPIPE) fail(e, "sending after SHUT_WR: %zd, %s", n, strerror(errno));
            }
        else {
            for (int k = 0; k < e->nconn; k++)
                if (shutdown(any_fd(a, k), SHUT_WR)) fail(e, "shutdown: %s", strerror(errno));
        }
        for (int k = 0; k < e->nconn && e->role == first; k++) expect_end(a, k, true);
        close_all(e);
        break;
    case 1:  // both close at once, with nothing in flight
        meet(e);
        close_all(e);
        break;
    default:  // one end sends its last bytes and closes at once; the other has all of them, then end-of-file
        for (int k = 0; k < e->nconn; k++) {
            struct conn *c = &e->conn[k];
            if (e->role == first) c->wend += size;
            else c->rend += size;
        }
        if (e->role == first) {
            engine(a, OUT, 0);
            close_all(e);
        } else {
            for (int k = 0; k < e->nconn; k++) finish_direction(a, k, IN);
            for (int k = 0; k < e->nconn; k++) expect_end(a, k, false);
            close_all(e);
        }
    }
    actor_free(a);
    meet(e);
}

static uint64_t phase_length(uint64_t *shared) {
    uint64_t kind = below(shared, 100);
    if (kind < 25) return 0;
    if (kind < 55) return 1 + below(shared, 4096);
    if (kind < 85) return 1 + below(shared, 300000);
    return 1 + below(shared, 3000000);
}

enum { BETWEEN, BULK, PINGPONG };

static void phase(struct end *e) {
    uint64_t shared = mix2(mix2(mix2(e->seed, e->session), (uint64_t)e->worker), 1000 + (uint64_t)e->phase), meeting = mix(shared);
    int messages = below(&shared, 3) == 0 ? 2 * (1 + (int)below(&shared, 100)) : 0;
    uint64_t largest = (uint64_t)1 << below(&shared, 18);
    if (e->stage == BETWEEN) {
        counted(e, C_phases);
        e->stage = messages ? PINGPONG : BULK;
        e->message = 0;
        for (int k = 0; k < e->nconn && !messages; k++) {
            uint64_t lengths[2];
            lengths[0] = phase_length(&shared), lengths[1] = phase_length(&shared);
            e->conn[k].wend += lengths[e->role], e->conn[k].rend += lengths[!e->role];
        }
        if (messages) counted(e, C_pingpong);
    }
    if (e->stage == BULK) transfer(e, false);
    for (; e->stage == PINGPONG;) {
        if (all_done(e)) {
            if (e->message == messages) break;
            for (int k = 0; k < e->nconn; k++) {
                uint64_t s = mix2(shared, (uint64_t)(e->message * CONNS + k)), length = size_upto(&s, largest);
                if (e->message % 2 == e->role) e->conn[k].wend += length;
                else e->conn[k].rend += length;
            }
            e->message++;
            if (chance(&e->rng, 30)) usleep((useconds_t)below(&e->rng, 3000));
        }
        transfer(e, true);
    }
    e->stage = BETWEEN;
    bool stop = meet(e);
    if (below(&meeting, 3) == 0) checkpoint(e, meeting);
    e->phase = stop ? e->phases : e->phase + 1;
}

// From wherever the end stands (an exec'd image begins in the middle of a phase) until the time is over.
static void run(struct end *e) {
    signal(SIGPIPE, SIG_IGN);
    for (;;) {
        uint64_t shared = mix2(mix2(e->seed, e->session), (uint64_t)e->worker);
        if (e->phase < 0) {
            if (meet(e)) return;
            session_begin(e, shared);
        }
        while (e->phase < e->phases) phase(e);
        session_end(e, shared ^ 1);
        e->session++;
        e->phase = -1;
    }
}

// ---- starting -----------------------------------------------------------------------------------------------------------------

static struct end *map_state(int fd) {
    struct end *e = mmap(NULL, sizeof *e, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (e == MAP_FAILED) fail(NULL, "mapping the state: %s", strerror(errno));
    return e;
}

struct options {
    uint64_t seed, seconds, workers, corrupt, patience;
    const char *role, *address, *side;
    int use_splice;
};

static struct end *end_new(const struct options *o, int worker, int role, int threaded, int side) {
    int fd = memfd_create("switching-state", 0);
    if (fd < 0 || ftruncate(fd, sizeof(struct end))) fail(NULL, "memfd: %s", strerror(errno));
    struct end *e = map_state(fd);
    e->self = fd;
    e->seed = o->seed, e->worker = worker, e->role = role, e->threaded = threaded, e->side = side;
    e->use_splice = o->use_splice;
    e->rng = mix2(mix2(o->seed, (uint64_t)worker), 77 + (uint64_t)role);
    e->until_ns = now_ns() + o->seconds * 1000000000u;
    e->patience_ms = o->patience;
    if (role == 1) e->corrupt_after = o->corrupt;
    snprintf(e->address, sizeof e->address, "%s", o->address);
    e->phase = -1;
    return e;
}

// The processes that sockets are passed to, begun before there is any. One of them is without LD_PRELOAD.
static pid_t helper_new(struct end *e, int other_side, bool bare) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) fail(e, "socketpair: %s", strerror(errno));
    pid_t child = fork_or_fail(e);
    if (child == 0) {
        close(pair[0]), close(e->side);
        if (other_side >= 0) close(other_side);
        if (!bare) serve_as_helper(e, pair[1]);
        char from[16], state[16];
        snprintf(from, sizeof from, "%d", pair[1]), snprintf(state, sizeof state, "%d", e->self);
        unsetenv("LD_PRELOAD");
        execl("/proc/self/exe", "switching", "--helper", from, state, NULL);
        fail(e, "exec: %s", strerror(errno));
    }
    close(pair[1]);
    fcntl(pair[0], F_SETFD, 0);
    *(bare ? &e->bare : &e->helper) = pair[0];
    return child;
}

static void summary(struct end *e) {
    char text[4096];
    int at = snprintf(text, sizeof text, "{\"worker\":%d,\"role\":\"%s\",\"threaded\":%s,\"seed\":%llu", e->worker, e->role ? "client" : "server",
                      e->threaded ? "true" : "false", (unsigned long long)e->seed);
    for (int i = 0; i < COUNTERS; i++) at += snprintf(text + at, sizeof text - (size_t)at, ",\"%s\":%llu", counter_names[i], (unsigned long long)e->count[i]);
    text[at++] = '}', text[at++] = '\n';
    (void)!write(1, text, (size_t)at);
}

static void *run_thread(void *p) {
    run(p);
    return NULL;
}

// The helpers are this worker's children, also after exec: all that are left are waited for.
static int finish(struct end *e) {
    close(e->helper), close(e->bare), close(e->side);
    int status;
    while (wait(&status) > 0)
        if (status) fail(e, "a helper ended with status %#x", (unsigned)status);
    summary(e);
    return 0;
}

static void worker_process(struct end *e) {
    helper_new(e, -1, false);
    helper_new(e, -1, true);
    run(e);
    exit(finish(e));
}

static void worker_threads(struct end *server, struct end *client) {
    // Helpers hold no copy of a side channel, or nobody would see that an end is gone.
    helper_new(server, client->side, false), helper_new(server, client->side, true);
    helper_new(client, server->side, false), helper_new(client, server->side, true);
    // The client's helpers have copies of the ends of the server's helpers' sockets: those are closed when these go.
    pthread_t threads[2];
    if (pthread_create(&threads[0], NULL, run_thread, server) || pthread_create(&threads[1], NULL, run_thread, client)) fail(server, "pthread_create");
    pthread_join(threads[0], NULL), pthread_join(threads[1], NULL);
    close(server->helper), close(server->bare), close(server->side);
    finish(client);
    summary(server);
    exit(0);
}

static int side_listen(const char *path) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    unlink(path);
    if (fd < 0 || bind(fd, (void *)&at, sizeof at) || listen(fd, 16)) fail(NULL, "%s: %s", path, strerror(errno));
    return fd;
}

static int side_connect(const char *path) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    for (int i = 0; connect(fd, (void *)&at, sizeof at); i++) {
        if (i > 600) fail(NULL, "%s: %s", path, strerror(errno));
        usleep(50000);
    }
    return fd;
}

static int usage(void) {
    fprintf(stderr, "usage: switching [--role both|threads|server|client] [--seed N] [--seconds N] [--workers N] [--address A]\n"
                    "                 [--side PATH] [--splice] [--patience-ms N] [--corrupt OFFSET]\n"
                    "server and client are two processes that meet at the unix socket PATH; both and threads are complete pairs.\n");
    return 2;
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--resume")) {
        struct end *e = map_state(atoi(argv[2]));
        run(e);
        return finish(e);
    }
    if (argc == 4 && !strcmp(argv[1], "--phase")) {
        signal(SIGPIPE, SIG_IGN);
        struct end *e = map_state(atoi(argv[2]));
        struct actor *a = actor_new(e, ~0u);
        a->rng = strtoull(argv[3], NULL, 10);
        a->keeps = true;
        engine(a, IN | OUT, 0);
        return 0;
    }
    if (argc == 4 && !strcmp(argv[1], "--helper")) serve_as_helper(map_state(atoi(argv[3])), atoi(argv[2]));

    struct options o = {.seed = now_ns() ^ (uint64_t)getpid() << 40, .seconds = 10, .workers = 1, .patience = 30000, .role = "both", .address = "127.0.0.1"};
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(name, "--splice")) {
            o.use_splice = 1;
            continue;
        }
        if (!value) return usage();
        i++;
        if (!strcmp(name, "--seed")) o.seed = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--seconds")) o.seconds = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--workers")) o.workers = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--corrupt")) o.corrupt = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--patience-ms")) o.patience = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--role")) o.role = value;
        else if (!strcmp(name, "--address")) o.address = value;
        else if (!strcmp(name, "--side")) o.side = value;
        else return usage();
    }
    bool threads = !strcmp(o.role, "threads"), both = !strcmp(o.role, "both"), server = !strcmp(o.role, "server"), client = !strcmp(o.role, "client");
    if (!(threads || both || server || client) || o.workers < 1 || o.workers > 64 || ((server || client) && !o.side)) return usage();
    if (!client) fprintf(stderr, "switching: seed %llu\n", (unsigned long long)o.seed);

    pid_t children[128];
    int n = 0, side = server ? side_listen(o.side) : -1;
    for (int i = 0; i < (int)o.workers; i++) {
        int pair[2];
        if (server || client) {
            int fd = server ? accept(side, NULL, NULL) : side_connect(o.side);
            if (fd < 0) fail(NULL, "the side channel: %s", strerror(errno));
            if ((children[n++] = fork_or_fail(NULL)) == 0) {
                if (side >= 0) close(side);
                worker_process(end_new(&o, i, client, 0, fd));
            }
            close(fd);
            continue;
        }
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) fail(NULL, "socketpair: %s", strerror(errno));
        if (threads) {
            if ((children[n++] = fork_or_fail(NULL)) == 0) worker_threads(end_new(&o, i, 0, 1, pair[0]), end_new(&o, i, 1, 1, pair[1]));
        } else {
            for (int role = 0; role < 2; role++)
                if ((children[n++] = fork_or_fail(NULL)) == 0) {
                    close(pair[!role]);
                    worker_process(end_new(&o, i, role, 0, pair[role]));
                }
        }
        close(pair[0]), close(pair[1]);
    }
    // The first failure is the one to see; the others are told by signal.
    int worst = 0, left = n;
    while (left > 0) {
        int status;
        pid_t pid = wait(&status);
        if (pid < 0 && errno == EINTR) continue;
        if (pid < 0) break;
        left--;
        for (int i = 0; i < n; i++)
            if (children[i] == pid) children[i] = 0;
        if (!status) continue;
        if (WIFSIGNALED(status)) fprintf(stderr, "switching: worker process %d ended by signal %d\n", pid, WTERMSIG(status));
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        if (worst == 0 || worst == 4) worst = code;
        // Its partner, if it is to blame, says so itself within a moment.
        usleep(300000);
        for (int i = 0; i < n; i++)
            if (children[i] && code != 4) kill(children[i], SIGTERM);
    }
    return worst == 4 ? 1 : worst;
}
