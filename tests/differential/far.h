// B in a process that nobody forked, most likely in another machine. It has an interpreter of its
// own, which does what this one hands on, by a connection that is made with raw system calls, so
// that nothing preloaded knows it. Streams go along with each step and each answer; what counts is
// what the first machine has of them, whose threads may go on meanwhile.
#pragma once
#include "ready.h"

static struct far {
    bool there;
    int fd;
    struct in_addr address;            // of the first machine
    struct stream told[STREAMS];       // what B was told last
} far;

static bool whole(long call, void *bytes, size_t length) {
    for (size_t done = 0; done < length;) {
        long n = raw_call(call, far.fd, (long)((char *)bytes + done), (long)(length - done), 0, 0);
        if (n == -EINTR) continue;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

static bool far_step(const char *line) {
    char step[512] = "";
    snprintf(step, sizeof step, "%s", line);
    memcpy(far.told, shared->stream, sizeof far.told);
    return whole(SYS_write, step, sizeof step) && whole(SYS_write, far.told, sizeof far.told);
}

// B's answer, and what it changed of the streams.
static bool far_answer(char *text, size_t length) {
    static struct stream now[STREAMS];
    if (!whole(SYS_read, text, length) || !whole(SYS_read, now, sizeof now)) return false;
    for (int i = 0; i < STREAMS; i++) {
        struct stream *own = &shared->stream[i], *is = &now[i], *was = &far.told[i];
        if (is->sent != was->sent) own->sent = is->sent;
        if (is->got != was->got) own->got = is->got;
        if (is->filled != was->filled) own->filled = is->filled;
        if (is->deaf != was->deaf) own->deaf = is->deaf;
    }
    return true;
}

static void execute(const char *line);

// What B does: a step after the other, until the first machine has no more.
static void far_serve(void) {
    char line[512];
    while (whole(SYS_read, line, sizeof line) &&
           whole(SYS_read, shared->stream, sizeof shared->stream)) {
        answer.length = 0;
        answer.is[0] = 0;
        execute(line);
        if (!whole(SYS_write, answer.is, sizeof answer.is)) return;
        if (!whole(SYS_write, shared->stream, sizeof shared->stream)) return;
    }
}

// The first machine waits for B there, or B calls it, again until it is there.
static void far_meet(const char *address, const char *port, bool calls) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    inet_pton(AF_INET, address, &at.sin_addr);
    far.address = at.sin_addr;
    long fd = -1, one = 1;
    for (bool met = false; !met; sleep_us(20000)) {
        if (fd >= 0) raw_call(SYS_close, fd, 0, 0, 0, 0);
        fd = raw_call(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0, 0, 0);
        long reuse = raw_call(SYS_setsockopt, fd, SOL_SOCKET, SO_REUSEADDR, (long)&one, sizeof(int));
        met = reuse == 0 && raw_call(calls ? SYS_connect : SYS_bind, fd, (long)&at, sizeof at, 0, 0) == 0;
    }
    if (!calls) {
        raw_call(SYS_listen, fd, 1, 0, 0, 0);
        fd = raw_call(SYS_accept4, fd, 0, 0, SOCK_CLOEXEC, 0);
    }
    raw_call(SYS_setsockopt, fd, IPPROTO_TCP, TCP_NODELAY, (long)&one, sizeof(int));
    // Out of the way of what scripts open.
    far.fd = (int)raw_call(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 600, 0, 0);
    raw_call(SYS_close, fd, 0, 0, 0, 0);
    far.there = true;
}

// `tcp` where B is elsewhere: the first machine accepts, and B, which is not busy, has the other end.
static void do_tcp_between(const struct words *w) {
    static char text[sizeof answer.is];
    struct sockaddr_in at;
    int l = listen_at(&at), there = new_stream(), back = new_stream();
    const struct warming *how = warming(word(w, 3));
    char call[512];
    snprintf(call, sizeof call, "call %s %d %d %d %s", word(w, 2), ntohs(at.sin_port), back, there,
             how->how);
    if (!far_step(call)) return say("gone");
    struct pollfd comes = {l, POLLIN, 0};
    poll(&comes, 1, 5000);
    int a = accept(l, NULL, NULL);
    close(l);
    if (a < 0) say_result("accept", a);
    begin(a);
    put(place(w, 1), a, CONNECTION, there, back);
    if (a >= 0) warm_end(place(w, 1), how->times, how->back, false);
    limits(a, LIMIT_MS);
    say("%s", far_answer(text, sizeof text) ? text : "gone");
}

// `call SLOT PORT IN OUT both|one|cold`: what B does of it.
static void do_call(const struct words *w) {
    uint16_t port = htons((uint16_t)number(w, 2));
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = port, .sin_addr = far.address};
    int c = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c, (void *)&at, sizeof at) < 0) say("connect: %s", strerrorname_np(errno));
    begin(c);
    put(place(w, 1), c, CONNECTION, (int)number(w, 3), (int)number(w, 4));
    const struct warming *how = warming(word(w, 5));
    warm_end(place(w, 1), how->times, how->back, true);
    limits(c, LIMIT_MS);
    say("connected");
}

static void do_connection(const struct words *w) {
    if (far.there) return do_tcp_between(w);
    do_tcp(w);
}
