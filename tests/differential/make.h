// Steps that make, duplicate, end and set descriptors.
#pragma once
#include "bytes.h"

static void put(struct slot *at, int fd, enum kind kind, int in, int out) {
    if (at->kind != NOTHING) close(at->fd);
    *at = (struct slot){fd, fd < 0 ? NOTHING : kind, in, out};
}

// Without Nagle's algorithm, which holds a byte back for as long as the other end puts off to
// acknowledge the one before.
static void no_delay(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static void limits(int fd, long ms) {
    struct timeval t = {ms / 1000, ms % 1000 * 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
}

static int listen_at(struct sockaddr_in *at) {
    socklen_t size = sizeof *at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = here};
    bind(fd, (void *)at, size);
    listen(fd, 16);
    getsockname(fd, (void *)at, &size);
    return fd;
}

// One end's part of warming: a byte out, or in, and where `back` one the other way, so many times.
// What a connection does before a script looks at it, so that it is carried by then.
static bool warm_way(const struct slot *s, bool out) {
    struct stream *of = stream(out ? s->out : s->in);
    uint8_t byte = pattern(out ? s->out : s->in, out ? of->sent++ : of->got++), got = 0;
    if (out) return write(s->fd, &byte, 1) == 1;
    return read(s->fd, &got, 1) == 1 && got == byte;
}

static void warm_end(const struct slot *s, int times, bool back, bool begins) {
    for (int i = 0; i < times * (1 + back); i++) {
        bool out = back ? (i % 2 == 0) == begins : begins;
        if (!warm_way(s, out)) return say(" warming failed");
    }
}

// The same of both ends.
static void warm(const struct slot *a, const struct slot *b, int times, bool back) {
    for (int i = 0; i < times * (1 + back); i++) {
        bool turned = back && i % 2;
        if (warm_way(turned ? b : a, true) && warm_way(turned ? a : b, false)) continue;
        return say(" warming failed");
    }
}

static const struct warming {
    const char *how;
    int times;
    bool back;
} WARMINGS[] = {{"both", 16, true}, {"one", 24, false}, {"cold", 0, false}};

static const struct warming *warming(const char *how) {
    size_t i = 0;
    while (i < 2 && strcmp(WARMINGS[i].how, how)) i++;
    return &WARMINGS[i];
}

static void begin(int fd) {
    no_delay(fd);
    limits(fd, 2000);
}

// `tcp SLOT SLOT both|one|cold`: a connection, the end that accepts first.
static void do_tcp(const struct words *w) {
    struct sockaddr_in at;
    int l = listen_at(&at);
    int c = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c, (void *)&at, sizeof at) < 0) say("connect: %s", strerrorname_np(errno));
    int a = accept(l, NULL, NULL);
    close(l);
    begin(c);
    begin(a);
    int there = new_stream(), back = new_stream();
    put(place(w, 1), a, CONNECTION, there, back);
    put(place(w, 2), c, CONNECTION, back, there);
    const struct warming *how = warming(word(w, 3));
    warm(place(w, 2), place(w, 1), how->times, how->back);
    limits(c, LIMIT_MS);
    limits(a, LIMIT_MS);
    say("connected");
}

// `listen SLOT`; `connect SLOT LISTENER`; `accept SLOT LISTENER`, in the order of the connects.
static void do_listen(const struct words *w) {
    struct sockaddr_in at;
    struct slot *s = place(w, 1);
    put(s, listen_at(&at), LISTENER, -1, -1);
    shared->listener[s - slots] = (struct listener){0};
    say("listens");
}

static void do_connect(const struct words *w) {
    struct slot *l = open_at(w, 2);
    if (!l) return;
    struct sockaddr_in at;
    socklen_t size = sizeof at;
    struct listener *queue = &shared->listener[l - slots];
    if (l->kind != LISTENER || queue->to - queue->from >= QUEUE) return say("no listener");
    getsockname(l->fd, (void *)&at, &size);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int done = connect(fd, (void *)&at, sizeof at), there = new_stream(), back = new_stream();
    say_result("connect", done);
    no_delay(fd);
    limits(fd, LIMIT_MS);
    if (done == 0) {
        queue->in[queue->to % QUEUE] = there;
        queue->out[queue->to++ % QUEUE] = back;
    }
    put(place(w, 1), fd, CONNECTION, back, there);
}

static void do_accept(const struct words *w) {
    struct slot *l = open_at(w, 2);
    if (!l) return;
    if (l->kind != LISTENER) return say("no listener");
    struct listener *queue = &shared->listener[l - slots];
    int fd = accept(l->fd, NULL, NULL), n = queue->from;
    if (fd < 0) return say_result("accept", fd);
    queue->from++;
    no_delay(fd);
    limits(fd, LIMIT_MS);
    put(place(w, 1), fd, CONNECTION, queue->in[n % QUEUE], queue->out[n % QUEUE]);
    say("accepted");
}

static void do_pipe(const struct words *w) {
    int fds[2] = {-1, -1}, s = new_stream();
    say_result("pipe", pipe2(fds, O_NONBLOCK));
    put(place(w, 1), fds[0], READS, s, -1);
    put(place(w, 2), fds[1], WRITES, -1, s);
}

static void do_event(const struct words *w) {
    put(place(w, 1), eventfd(0, EFD_NONBLOCK), EVENT, -1, -1);
    say("made");
}

static void do_epoll(const struct words *w) {
    put(place(w, 1), epoll_create1(0), SET, -1, -1);
    say("made");
}

// Whether FIN is on its way and not acknowledged. The kernel may put the acknowledgement off by
// 40 ms; as it changes the socket's state, and so is an edge of its own, it is waited for.
static bool fin_is_open(int fd) {
    struct tcp_info info;
    socklen_t size = sizeof info;
    if (raw_call(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, (long)&info, (long)&size) < 0) {
        return false;
    }
    int state = info.tcpi_state;
    return state == TCP_FIN_WAIT1 || state == TCP_CLOSING || state == TCP_LAST_ACK;
}

// The slot of this process that reads stream `s`.
static struct slot *reader_of(int s) {
    for (int i = 0; i < SLOTS && s >= 0; i++) {
        if (slots[i].kind != NOTHING && slots[i].in == s) return &slots[i];
    }
    return NULL;
}

// When FIN arrives behind more bytes than the receiver's buffer takes depends on the buffer: they
// are drained in the same step, and where this process has no end to drain there is no such step.
static bool ends_in_the_open(int out) {
    return stream(out) && stream(out)->filled && !reader_of(out);
}

static void after_end(int out) {
    struct slot *reader = reader_of(out);
    if (stream(out) && stream(out)->filled && reader) {
        say(", ");
        drain(reader);
    }
}

// `dup OF AT`, `dup2 OF AT`: the second takes the number that AT has, where it has one.
static void do_dup(const struct words *w) {
    struct slot *of = open_at(w, 1), *at = place(w, 2);
    if (!of || of == at) return;
    // What AT has is closed.
    if (at->kind != NOTHING && ends_in_the_open(at->out)) return say("full");
    struct slot copy = *of;
    if (!strcmp(w->is[0], "dup2") && at->kind != NOTHING) {
        int fd = dup2(of->fd, at->fd), out = at->out;
        copy.fd = at->fd;
        *at = copy;
        say("%s", fd == copy.fd ? "duplicated" : "not duplicated");
        return after_end(out);
    }
    int fd = dup(of->fd);
    put(at, fd, copy.kind, copy.in, copy.out);
    say("%s", fd < 0 ? strerrorname_np(errno) : "duplicated");
}

static void do_shut(const struct words *w) {
    struct slot *s = open_at(w, 1);
    if (!s) return;
    const char *how = word(w, 2);
    int way = !strcmp(how, "RD") ? SHUT_RD : !strcmp(how, "WR") ? SHUT_WR : SHUT_RDWR;
    if (way != SHUT_RD && ends_in_the_open(s->out)) return say("full");
    if (way != SHUT_WR && stream(s->in)) {
        if (stream(s->in)->filled) return say("only drained");
        stream(s->in)->deaf = true;
    }
    say_result("shutdown", shutdown(s->fd, way));
    if (way != SHUT_RD) after_end(s->out);
    for (int i = 0; i < 80 && s->kind == CONNECTION && fin_is_open(s->fd); i++) settle();
}

static void do_close(const struct words *w) {
    struct slot *s = open_at(w, 1);
    if (!s) return;
    if (ends_in_the_open(s->out)) return say("full");
    int out = s->out, done = close(s->fd);
    s->kind = NOTHING;
    say_result("close", done);
    after_end(out);
}

static void set_option(int fd, int level, int name, int value) {
    say_result("set", setsockopt(fd, level, name, &value, sizeof value));
}

// `opt SLOT NAME VALUE`.
static void do_option(const struct words *w) {
    struct slot *s = open_at(w, 1);
    if (!s) return;
    const char *name = word(w, 2);
    int value = (int)number(w, 3);
    struct linger linger = {1, 0};
    struct timeval t = {0, value * 1000};
    if (!strcmp(name, "NONBLOCK")) {
        int flags = fcntl(s->fd, F_GETFL);
        flags = value ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
        return say_result("set", s->kind == CONNECTION ? fcntl(s->fd, F_SETFL, flags) : 0);
    }
    if (!strcmp(name, "LINGER")) {
        int done = setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
        return say_result("set", done);
    }
    if (!strcmp(name, "RCVTIMEO")) {
        return say_result("set", setsockopt(s->fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    }
    if (!strcmp(name, "RCVLOWAT")) return set_option(s->fd, SOL_SOCKET, SO_RCVLOWAT, value);
    if (!strcmp(name, "OOBINLINE")) return set_option(s->fd, SOL_SOCKET, SO_OOBINLINE, value);
    set_option(s->fd, SOL_SOCKET, SO_KEEPALIVE, value);
}

// `error SLOT`: SO_ERROR, which is taken by being read.
static void do_error(const struct words *w) {
    struct slot *s = open_at(w, 1);
    if (!s) return;
    int error = 0;
    socklen_t size = sizeof error;
    int done = getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (done < 0) return say_result("getsockopt", done);
    say("error %s", error ? strerrorname_np(error) : "none");
}
