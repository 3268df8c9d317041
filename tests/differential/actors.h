// Who executes a step: the first thread (A), a child process (B), or one of two further threads
// (T, U). The first thread reads the script and hands each step on, so that the order is the
// script's. It waits for the answer, unless the step is to go on beside those that follow (`go`);
// `collect` waits for all that go. B may be elsewhere from the start (`far.h`).
#pragma once
#include "far.h"

enum { ACTORS = 3, ANSWER = sizeof answer.is };
static const char NAMES[ACTORS] = "BTU";

struct actor {
    bool there, busy;
    pid_t pid;       // of B
    int to, from;    // pipes: a step there, an answer back
    pthread_t thread;
};

static struct actor actors[ACTORS];

static int high(int fd) {
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, 600);
    close(fd);
    return moved;
}

static void serve(int steps, int answers) {
    char line[512];
    while (read(steps, line, sizeof line) > 0) {
        answer.length = 0;
        answer.is[0] = 0;
        execute(line);
        if (write(answers, answer.is, ANSWER) != ANSWER) return;
    }
}

struct ends {
    int steps, answers;
};

static void *thread_main(void *argument) {
    struct ends ends = *(struct ends *)argument;
    free(argument);
    serve(ends.steps, ends.answers);
    return NULL;
}

static void pipes(struct actor *a, struct ends *ends) {
    int steps[2], answers[2];
    if (pipe(steps) < 0 || pipe(answers) < 0) _exit(98);
    a->to = high(steps[1]);
    a->from = high(answers[0]);
    *ends = (struct ends){high(steps[0]), high(answers[1])};
}

// `fork`: B begins, with all descriptors there are.
static void do_fork(const struct words *w) {
    (void)w;
    struct actor *b = &actors[0];
    if (b->there) return say("is there");
    struct ends ends;
    pipes(b, &ends);
    pid_t child = fork();
    if (child == 0) {
        // So that the end of one is seen by the other.
        for (int i = 0; i < ACTORS; i++) {
            if (actors[i].to) {
                close(actors[i].to);
                close(actors[i].from);
            }
        }
        alarm(0);
        serve(ends.steps, ends.answers);
        exit(0);
    }
    close(ends.steps);
    close(ends.answers);
    b->pid = child;
    b->there = child > 0;
    say("forked");
}

static struct actor *actor(char name) {
    const char *at = memchr(NAMES, name, ACTORS);
    struct actor *a = at ? &actors[at - NAMES] : NULL;
    if (!a || a->there) return a;
    if (name == 'B') return NULL;
    struct ends ends, *handed = malloc(sizeof *handed);
    if (!handed) return NULL;
    pipes(a, &ends);
    *handed = ends;
    a->there = pthread_create(&a->thread, NULL, thread_main, handed) == 0;
    return a->there ? a : NULL;
}

static bool is_far(const struct actor *a) { return far.there && a == &actors[0]; }

static bool post(struct actor *a, const char *line) {
    if (is_far(a)) return a->busy = far_step(line);
    char step[512] = "";
    snprintf(step, sizeof step, "%s", line);
    a->busy = write(a->to, step, sizeof step) == sizeof step;
    return a->busy;
}

static void take(struct actor *a) {
    static char text[ANSWER];
    size_t n = is_far(a) && far_answer(text, ANSWER) ? ANSWER : 0;
    while (n < ANSWER && !is_far(a)) {
        ssize_t r = read(a->from, text + n, ANSWER - n);
        if (r < 0 && errno == EINTR) continue;
        if (r <= 0) break;
        n += (size_t)r;
    }
    a->busy = false;
    say("%s", n == ANSWER ? text : "gone");
}

// `exit`: B ends with its descriptors open.
static void do_exit(const struct words *w) {
    struct actor *b = &actors[0];
    if (!b->there || b->busy || is_far(b)) return say("not there");
    for (int i = 0; i < STREAMS; i++) {
        // What it filled would end behind more bytes than the receiver's buffer takes.
        if (shared->stream[i].filled && w->count) return say("full");
    }
    close(b->to);
    close(b->from);
    int status = -1;
    waitpid(b->pid, &status, 0);
    *b = (struct actor){0};
    say("ended %#x", (unsigned)status);
}

static void do_collect(const struct words *w) {
    (void)w;
    for (int i = 0; i < ACTORS; i++) {
        if (!actors[i].busy) continue;
        say("%c: ", NAMES[i]);
        take(&actors[i]);
        say("; ");
    }
}

static bool anybody_busy(void) {
    return actors[0].busy || actors[1].busy || actors[2].busy;
}
