// What all steps share: the table of descriptors, the streams between them, and the answer of
// the step that runs. Descriptors belong to a process; a child has a copy of the table, as it has
// of the descriptors. Streams lie in memory that parent and child share.
#pragma once
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
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
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "raw.h"

enum {
    SLOTS = 64,
    STREAMS = 128,
    QUEUE = 16,       // connections that a listener has not given out
    PERIOD = 251,     // of the pattern: a prime, so that it fits no power of two
    BLOCK = 65536,    // of filling and draining
    LIMIT_MS = 10,    // SO_RCVTIMEO and SO_SNDTIMEO of every connection
    WORDS = 24,
};

enum kind { NOTHING, CONNECTION, READS, WRITES, EVENT, SET, LISTENER };

// One direction of a connection, or a pipe.
struct stream {
    uint64_t sent, got;
    bool filled;  // somebody wrote until EAGAIN, and nobody has drained it since
    bool deaf;    // its reader was shut down
};

struct slot {
    int fd;
    enum kind kind;
    int in, out;  // its streams
};

struct listener {
    int from, to, in[QUEUE], out[QUEUE];
};

struct shared {
    int streams;
    struct stream stream[STREAMS];
    struct listener listener[SLOTS];
};

static struct shared *shared;
static struct slot slots[SLOTS];
static uint64_t room = 2000;  // bytes that a stream may hold unread, where it is not filled
static int pattern_file = -1;
static long settle_us = 1200;  // in which loopback delivers
static int still = 3;          // how often that passes without a byte until a stream is full, or empty
static struct in_addr here = {0};  // where this machine's listeners are: loopback, or what the other reaches

struct text {
    size_t length;
    char is[4096];
};

// The answer of the step that this thread executes.
static __thread struct text answer;

static __attribute__((format(printf, 1, 2))) void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    size_t left = sizeof answer.is - answer.length;
    int n = vsnprintf(answer.is + answer.length, left, format, args);
    va_end(args);
    if (n > 0) answer.length += (size_t)n < left ? (size_t)n : left - 1;
}

static void say_result(const char *what, long result) {
    if (result < 0) {
        say("%s %s", what, strerrorname_np(errno));
    } else {
        say("%s %ld", what, result);
    }
}

static void sleep_us(long us) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    while (nanosleep(&t, &t) < 0 && errno == EINTR) {
    }
}

static void settle(void) { sleep_us(settle_us); }

// Byte `at` of stream `s`.
static uint8_t pattern(int s, uint64_t at) { return (uint8_t)((at + (uint64_t)s * 37) % PERIOD); }

static int new_stream(void) {
    int s = __atomic_fetch_add(&shared->streams, 1, __ATOMIC_RELAXED) % STREAMS;
    memset(&shared->stream[s], 0, sizeof shared->stream[s]);
    return s;
}

static struct stream *stream(int s) { return s < 0 ? NULL : &shared->stream[s]; }

// Words of a step, split at blanks.
struct words {
    int count;
    char *is[WORDS];
    char copy[512];
};

static void split(struct words *w, const char *line) {
    snprintf(w->copy, sizeof w->copy, "%s", line);
    w->count = 0;
    char *rest = NULL;
    for (char *t = strtok_r(w->copy, " ", &rest); t && w->count < WORDS;
         t = strtok_r(NULL, " ", &rest)) {
        w->is[w->count++] = t;
    }
}

static const char *word(const struct words *w, int i) { return i < w->count ? w->is[i] : ""; }
static long number(const struct words *w, int i) { return strtol(word(w, i), NULL, 0); }

// The slot that word `i` names, whether or not something is in it.
static struct slot *place(const struct words *w, int i) {
    return &slots[(unsigned long)number(w, i) % SLOTS];
}

// The same, but NULL (and an answer that says so) where nothing is open there: a step whose
// descriptor went away with a line that was dropped says the same in both runs.
static struct slot *open_at(const struct words *w, int i) {
    struct slot *s = place(w, i);
    if (i < w->count && s->kind != NOTHING) return s;
    say("nothing open");
    return NULL;
}

struct flag {
    const char *name;
    unsigned bit;
};

static const struct flag EVENTS[] = {
    {"IN", EPOLLIN},       {"PRI", EPOLLPRI},         {"OUT", EPOLLOUT},
    {"ERR", EPOLLERR},     {"HUP", EPOLLHUP},         {"RDHUP", EPOLLRDHUP},
    {"ET", EPOLLET},       {"ONESHOT", EPOLLONESHOT}, {"EXCLUSIVE", EPOLLEXCLUSIVE},
    {NULL, 0},
};
static const struct flag MESSAGE[] = {
    {"DONTWAIT", MSG_DONTWAIT}, {"PEEK", MSG_PEEK}, {"WAITALL", MSG_WAITALL},
    {"TRUNC", MSG_TRUNC},       {"OOB", MSG_OOB},   {NULL, 0},
};

static unsigned flags(const struct flag *table, const char *text) {
    unsigned bits = 0;
    char copy[128];
    snprintf(copy, sizeof copy, "%s", text);
    char *rest = NULL;
    for (char *t = strtok_r(copy, "|", &rest); t; t = strtok_r(NULL, "|", &rest)) {
        for (const struct flag *f = table; f->name; f++) {
            if (!strcmp(t, f->name)) bits |= f->bit;
        }
    }
    return bits;
}

static void say_flags(const struct flag *table, unsigned bits) {
    const char *between = "";
    for (const struct flag *f = table; f->name; f++) {
        if (!(bits & f->bit)) continue;
        say("%s%s", between, f->name);
        between = "|";
        bits &= ~f->bit;
    }
    if (bits) say("%s%#x", between, bits);
}
