// Steps that move bytes. What a stream carries is known at every offset, so that a reader can say
// whether it got what was sent without knowing how much that was.
#pragma once
#include "table.h"

static __thread uint8_t buffer[BLOCK];

static int vector(struct iovec *parts, size_t length) {
    size_t first = length / 3;
    parts[0] = (struct iovec){buffer, first};
    parts[1] = (struct iovec){buffer + first, 0};
    parts[2] = (struct iovec){buffer + first, length - first};
    return 3;
}

static ssize_t send_by(const char *how, const struct slot *s, size_t length, unsigned bits) {
    struct iovec parts[3];
    struct msghdr message = {.msg_iov = parts};
    int flags = (int)bits | MSG_NOSIGNAL;
    if (!strcmp(how, "send")) return send(s->fd, buffer, length, flags);
    if (!strcmp(how, "writev")) return writev(s->fd, parts, vector(parts, length));
    if (!strcmp(how, "sendmsg")) {
        message.msg_iovlen = (size_t)vector(parts, length);
        return sendmsg(s->fd, &message, flags);
    }
    if (!strcmp(how, "sendfile")) {
        off_t from = pattern(s->out, stream(s->out)->sent);
        return sendfile(s->fd, pattern_file, &from, length);
    }
    return write(s->fd, buffer, length);
}

static void event_write(const struct slot *s, uint64_t value) {
    say_result("write", write(s->fd, &value, sizeof value));
}

// `write SLOT LENGTH [FLAGS]`, and send, writev, sendmsg, sendfile.
static void do_write(const struct words *w) {
    struct slot *s = open_at(w, 1);
    if (!s) return;
    if (s->kind == EVENT) return event_write(s, (uint64_t)number(w, 2));
    struct stream *to = stream(s->out);
    if (!to) return say("not written to");
    unsigned bits = flags(MESSAGE, word(w, 3));
    // Whether a full buffer takes an urgent byte, with which it begins anew, is the kernel's to
    // decide.
    if (to->filled && bits & MSG_OOB) return say("into a full one");
    uint64_t length = (uint64_t)number(w, 2) % BLOCK, lies = to->sent - to->got;
    // What a stream holds beyond its room is for the kernel to decide: no more is asked of it. One
    // byte always is, to hear what a reader that is gone answers.
    uint64_t left = lies < room ? room - lies : 1;
    if (length > left) length = left;
    for (size_t i = 0; i < length; i++) buffer[i] = pattern(s->out, to->sent + i);
    // A full one is not waited for: a ring grows for a writer that waits, and has room then.
    bool waits = !to->filled || s->kind != CONNECTION;
    const char *how = waits ? w->is[0] : "send";
    ssize_t n = send_by(how, s, length, bits | (waits ? 0 : MSG_DONTWAIT));
    int error = errno;
    if (n > 0) to->sent += (uint64_t)n;
    if (to->filled && (n > 0 || (n < 0 && error == EAGAIN))) return say("into a full one");
    errno = error;
    say_result("wrote", n);
}

static ssize_t receive_by(const char *how, const struct slot *s, size_t length, int flags) {
    struct iovec parts[3];
    struct msghdr message = {.msg_iov = parts};
    if (!strcmp(how, "recv")) return recv(s->fd, buffer, length, flags);
    if (!strcmp(how, "readv")) return readv(s->fd, parts, vector(parts, length));
    if (!strcmp(how, "recvmsg")) {
        message.msg_iovlen = (size_t)vector(parts, length);
        return recvmsg(s->fd, &message, flags);
    }
    return read(s->fd, buffer, length);
}

// Says where the bytes are not what follows in the stream: never, but around urgent data.
static void check(const struct slot *s, size_t length, bool taken) {
    struct stream *from = stream(s->in);
    uint64_t at = from->got;
    for (size_t i = 0; i < length; i++, at++) {
        int jump = (buffer[i] - pattern(s->in, at) + PERIOD) % PERIOD;
        if (jump) say(" jumps %d at %zu", jump, i);
        at += (uint64_t)jump;
    }
    if (taken) from->got = at;
}

// `read SLOT LENGTH [FLAGS]`, and recv, readv, recvmsg.
static void do_read(const struct words *w) {
    struct slot *s = open_at(w, 1);
    if (!s) return;
    uint64_t value = 0;
    if (s->kind == EVENT) {
        say_result("read", read(s->fd, &value, sizeof value));
        return say(" value %llu", (unsigned long long)value);
    }
    struct stream *from = stream(s->in);
    if (!from) return say("not read from");
    unsigned bits = flags(MESSAGE, word(w, 3));
    // How far a full stream must be read until it can be written to again is the kernel's to
    // decide: it is drained, or looked at.
    if (from->filled && !(bits & MSG_PEEK)) return say("only drained");
    size_t length = (size_t)number(w, 2) % BLOCK;
    ssize_t n = receive_by(w->is[0], s, length, (int)bits);
    say_result("got", n);
    // MSG_TRUNC throws the bytes away: they are counted, and nothing lies in the buffer.
    if (n > 0 && bits & MSG_TRUNC) {
        if (!(bits & MSG_PEEK)) from->got += (uint64_t)n;
    } else if (n > 0 && !(bits & MSG_OOB)) {
        check(s, (size_t)n, !(bits & MSG_PEEK));
    }
}

// A call that does not wait, on a connection or a pipe.
static ssize_t at_once(const struct slot *s, bool out, size_t length) {
    if (s->kind == CONNECTION && out) {
        return send(s->fd, buffer, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    if (s->kind == CONNECTION) return recv(s->fd, buffer, length, MSG_DONTWAIT);
    return out ? write(s->fd, buffer, length) : read(s->fd, buffer, length);
}

// `fill SLOT`: until the kernel takes no more, also after it had time to move what it has.
static void do_fill(const struct words *w) {
    struct slot *s = open_at(w, 1);
    struct stream *to = s ? stream(s->out) : NULL;
    if (!to) return say(" no stream");
    // How much a reader that is shut down takes out of the way is the kernel's to decide.
    if (to->deaf) return say("nobody reads");
    int error = 0;
    bool was_filled = to->filled;
    uint64_t before = to->sent;
    for (int quiet = 0; quiet < still;) {
        for (size_t i = 0; i < BLOCK; i++) buffer[i] = pattern(s->out, to->sent + i);
        ssize_t n = at_once(s, true, BLOCK);
        error = n < 0 ? errno : 0;
        if (n > 0) {
            to->sent += (uint64_t)n;
            quiet = 0;
        } else if (error == EAGAIN) {
            quiet++;
            settle();
        } else {
            break;
        }
    }
    to->filled = error == EAGAIN;
    const char *took = was_filled ? "more" : to->sent > before ? "some" : "none";
    say("filled: %s then %s", took, strerrorname_np(error));
}

static void drain(struct slot *s) {
    struct stream *from = stream(s->in);
    bool was_filled = from->filled;
    uint64_t before = from->got;
    ssize_t n = 0;
    for (int quiet = 0; quiet < still;) {
        n = at_once(s, false, BLOCK);
        if (n > 0) {
            check(s, (size_t)n, true);
            quiet = 0;
        } else if (n < 0 && errno == EAGAIN && was_filled) {
            quiet++;
            settle();
        } else {
            break;
        }
    }
    int error = errno;
    uint64_t taken = from->got - before;
    if (was_filled) {
        say("drained %s", taken ? "some" : "none");
    } else {
        say("drained %llu", (unsigned long long)taken);
    }
    from->filled = false;
    say(" then %s", n == 0 ? "end" : strerrorname_np(error));
}

// `drain SLOT`: until nothing is left.
static void do_drain(const struct words *w) {
    struct slot *s = open_at(w, 1);
    if (!s) return;
    if (!stream(s->in)) return say("no stream");
    drain(s);
}

// `inq SLOT` and `outq SLOT`: SIOCOUTQ is by the kernel what is not acknowledged, which it may put
// off, and by Ginnel what is not read. Both lie between nothing and what is not read.
static void do_queue(const struct words *w) {
    struct slot *s = open_at(w, 1);
    if (!s) return;
    int n = 0;
    bool in = !strcmp(w->is[0], "inq");
    int done = ioctl(s->fd, in ? FIONREAD : SIOCOUTQ, &n);
    struct stream *of = stream(in ? s->in : s->out);
    if (done < 0) return say_result(w->is[0], done);
    if (!in) return say("outq %s", n >= 0 && of && (uint64_t)n <= of->sent ? "fits" : "is wrong");
    if (of && of->filled) return say("inq %s", n > 0 ? "some" : "none");
    say("inq %d", n);
}
