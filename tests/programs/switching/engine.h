// Moving what remains of a phase: one thread of control, any number of connections, either or both directions.
#pragma once
#include <sched.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "calls.h"
#include "waiting.h"

static struct actor *actor_new(struct end *e, unsigned conns) {
    struct actor *a = calloc(1, sizeof *a);
    if (!a) fail(e, "no memory");
    *a = (struct actor){.e = e, .rng = rnd(&e->rng), .alone = true};
    a->buf = malloc(BUFFER + 64), a->want = malloc(BUFFER + 64);
    if (!a->buf || !a->want) fail(e, "no memory");
    for (int k = 0; k < e->nconn; k++) {
        if (!(conns & 1u << k)) continue;
        memcpy(a->fd[k], e->conn[k].fd, sizeof a->fd[k]);
        a->names[k] = e->conn[k].names;
    }
    return a;
}

static void actor_free(struct actor *a) {
    free(a->buf), free(a->want), free(a);
}

static unsigned remaining(const struct end *e, int k, unsigned mask) {
    const struct conn *c = &e->conn[k];
    return (mask & IN && c->rpos < c->rend ? (unsigned)IN : 0u) | (mask & OUT && c->wpos < c->wend ? (unsigned)OUT : 0u);
}

static bool all_done(const struct end *e) {
    for (int k = 0; k < e->nconn; k++)
        if (remaining(e, k, IN | OUT)) return false;
    return true;
}

static void storm_end(void) {
    struct itimerval off = {0};
    setitimer(ITIMER_REAL, &off, NULL);
    storms = 0;
}

static __attribute__((noreturn)) void exec_self(struct actor *a) {
    char state[16];
    counted(a->e, C_exec_self);
    storm_end();
    a->e->rng = rnd(&a->rng);
    snprintf(state, sizeof state, "%d", a->e->self);
    execl("/proc/self/exe", "switching", "--resume", state, NULL);
    fail(a->e, "exec: %s", strerror(errno));
}

static struct moved step(struct actor *a, int k, unsigned direction, bool ready, bool block, uint64_t *progress) {
    struct moved m = direction == IN ? take(a, k, ready, block) : give(a, k, ready, block);
    if (m.n == 0 && !m.looked) fail(a->e, "end of file on connection %d in the middle of the stream", k);
    if (m.n > 0) *progress = now_ns();
    else if (now_ns() - *progress > a->e->patience_ms * 1000000u) fail(a->e, "no progress on connection %d, direction %u", k, direction);
    return m;
}

static void stuck(struct actor *a, const struct waiter *w, const unsigned need[CONNS]) {
    fail(a->e, "lost wake-up: waited %llu ms (kind %d) for %u %u %u", (unsigned long long)a->e->patience_ms, w->kind, need[0], need[1], need[2]);
}

// Moves the remaining bytes of the actor's connections in the directions of `mask`, at most `steps` steps (0: until done).
// With one direction left it may also sleep in the call: nothing else of its own could then keep the other end from going on.
static void engine(struct actor *a, unsigned mask, long steps) {
    struct end *e = a->e;
    struct waiter w;
    unsigned conns = 0, need[CONNS] = {0}, got[CONNS] = {0}, ready[CONNS] = {0}, must[CONNS] = {0};
    uint64_t progress = now_ns();
    bool short_is_empty = chance(&a->rng, 2);
    for (int k = 0; k < e->nconn; k++)
        if (a->names[k]) conns |= 1u << k;
    enum kind kind = (enum kind)below(&a->rng, KINDS);
    if ((kind == KEPT_LEVEL || kind == KEPT_EDGE) && !a->keeps) kind = MIXED;
    if (kind == SPIN && !chance(&a->rng, 4)) kind = MIXED;
    if (e->lone) kind = e->level >= 0 ? KEPT_LEVEL : e->edge >= 0 ? KEPT_EDGE : kind == SPIN ? SPIN : MIXED;
    waiter_begin(a, &w, kind, conns);
    for (int k = 0; k < CONNS && kind == KEPT_EDGE; k++) ready[k] = IN | OUT;

    for (long done = 0; steps == 0 || done < steps; done++) {
        int open = 0, last = 0;
        unsigned direction = 0;
        for (int k = 0; k < e->nconn; k++) {
            need[k] = a->names[k] ? remaining(e, k, mask) : 0;
            if (need[k]) open += need[k] == (IN | OUT) ? 2 : 1, last = k, direction = need[k];
        }
        if (!open) break;
        if (chance(&a->rng, 400)) usleep((useconds_t)below(&a->rng, 1500));
        if (mask == (IN | OUT) && a->alone && chance(&a->rng, 40)) set_nonblock(a, last, chance(&a->rng, 2));
        if (a->may_exec && chance(&a->rng, 3000)) {
            waiter_end(a, &w);
            exec_self(a);
        }
        if (open == 1 && e->lone <= LONE_THREAD && chance(&a->rng, 3)) {
            struct moved m = step(a, last, direction, false, true, &progress);
            must[last] = 0;  // what was reported before may be used up
            if (m.n >= 0) continue;
        }
        if (kind == SPIN) {
            // Any of them: the other end may be at one alone.
            do last = (int)below(&a->rng, (uint64_t)e->nconn);
            while (!need[last]);
            if (step(a, last, need[last] & IN && (need[last] == IN || chance(&a->rng, 2)) ? IN : OUT, false, false, &progress).n < 0) sched_yield();
            continue;
        }
        if (edge_triggered(kind)) {
            bool tried = false;
            for (int i = 0, k = (int)below(&a->rng, CONNS); i < CONNS; i++, k = (k + 1) % CONNS)
                for (unsigned d = IN; d <= OUT; d <<= 1) {
                    if (!(need[k] & d & ready[k]) || chance(&a->rng, 3)) continue;
                    struct moved m = step(a, k, d, must[k] & d, false, &progress);
                    tried = true;
                    if (!m.looked) must[k] &= ~d;
                    if (m.n < 0 || (m.partial && short_is_empty)) ready[k] &= ~d;
                }
            for (int k = 0; k < CONNS; k++) tried |= (need[k] & ready[k]) != 0;
            if (tried && !chance(&a->rng, 8)) continue;
            if (!wait_ready(a, &w, need, got, tried ? 0 : chance(&a->rng, 8) ? -1 : (int)e->patience_ms)) {
                if (!tried) stuck(a, &w, need);
                continue;
            }
            for (int k = 0; k < CONNS; k++) ready[k] |= got[k], must[k] |= got[k];
            if (now_ns() - progress > 2 * e->patience_ms * 1000000u) stuck(a, &w, need);
            continue;
        }
        if (chance(&a->rng, 5)) {  // without having asked
            step(a, last, need[last] & IN && (need[last] == IN || chance(&a->rng, 2)) ? IN : OUT, false, false, &progress);
            continue;
        }
        if (!wait_ready(a, &w, need, got, chance(&a->rng, 8) ? -1 : (int)e->patience_ms)) stuck(a, &w, need);
        for (int k = 0; k < e->nconn; k++)
            for (unsigned d = IN; d <= OUT; d <<= 1) {
                if (!(got[k] & d)) continue;
                struct moved m = step(a, k, d, true, false, &progress);
                for (int more = (int)below(&a->rng, 3); more > 0 && m.n > 0 && remaining(e, k, d); more--) m = step(a, k, d, false, false, &progress);
            }
    }
    waiter_end(a, &w);
}
