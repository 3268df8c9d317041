// Waiting for readiness in every way the kernel has, and believing nothing it was not asked for.
#pragma once
#include <sys/epoll.h>
#include <sys/select.h>

#include "end.h"

extern int __poll_chk(struct pollfd *, nfds_t, int, size_t);
extern int __ppoll_chk(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t);

enum kind { LEVEL, EDGE, ONESHOT, EXCLUSIVE, NESTED, NESTED_POLL, SEVERAL, KEPT_LEVEL, KEPT_EDGE, MIXED, SPIN, KINDS };

enum { SETS = 3 };
struct waiter {
    enum kind kind;
    int set[SETS], sets, outer;
    uint32_t interest[CONNS];
    bool added[CONNS];
};

static const uint64_t TAG = 0x67696e6e656c0000u;

static bool edge_triggered(enum kind kind) { return kind == EDGE || kind == KEPT_EDGE; }

static uint32_t events_of(unsigned need) {
    return (need & IN ? EPOLLIN : 0u) | (need & OUT ? EPOLLOUT : 0u);
}

static void control(struct actor *a, int set, int op, int fd, uint32_t events, uint64_t data) {
    struct epoll_event ev = {.events = events, .data.u64 = data};
    if (epoll_ctl(set, op, fd, &ev)) fail(a->e, "epoll_ctl op %d of fd %d, events %#x: %s", op, fd, events, strerror(errno));
}

static int new_set(struct actor *a) {
    int set = chance(&a->rng, 2) ? epoll_create1(EPOLL_CLOEXEC) : epoll_create(1);
    if (set < 0) fail(a->e, "epoll_create: %s", strerror(errno));
    return set;
}

static void waiter_begin(struct actor *a, struct waiter *w, enum kind kind, unsigned conns) {
    static const int counter[KINDS] = {C_level, C_edge, C_oneshot, C_exclusive, C_nested, C_nested_poll, C_several, C_kept_level, C_kept_edge, C_mixed, C_spin};
    counted(a->e, counter[kind]);
    *w = (struct waiter){.kind = kind, .outer = -1};
    if (kind == MIXED || kind == SPIN) return;
    if (kind == KEPT_LEVEL || kind == KEPT_EDGE) {
        w->set[0] = kind == KEPT_LEVEL ? a->e->level : a->e->edge;
        w->sets = 1;
        for (int k = 0; k < CONNS; k++) w->added[k] = true, w->interest[k] = ~0u;
        return;
    }
    w->sets = kind == SEVERAL ? SETS : 1;
    for (int i = 0; i < w->sets; i++) w->set[i] = new_set(a);
    if (kind == NESTED) {
        w->outer = new_set(a);
        control(a, w->outer, EPOLL_CTL_ADD, w->set[0], EPOLLIN, TAG | 0xff);
    }
    if (kind == EDGE)
        for (int k = 0; k < CONNS; k++)
            if (conns & 1u << k) control(a, w->set[0], EPOLL_CTL_ADD, a->fd[k][0], EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, TAG | (unsigned)k);
}

static void waiter_end(struct actor *a, struct waiter *w) {
    if (w->kind == KEPT_LEVEL)  // as it lies between phases: interested in reading
        for (int k = 0; k < a->e->nconn; k++) control(a, w->set[0], EPOLL_CTL_MOD, a->fd[k][0], EPOLLIN, TAG | (unsigned)k);
    if (w->kind == KEPT_LEVEL || w->kind == KEPT_EDGE) return;
    for (int i = 0; i < w->sets; i++) close(w->set[i]);
    if (w->outer >= 0) close(w->outer);
}

// Makes the sets' interest what is needed now.
static void register_interest(struct actor *a, struct waiter *w, const unsigned need[CONNS]) {
    if (edge_triggered(w->kind)) return;
    for (int k = 0; k < a->e->nconn; k++) {
        uint32_t events = events_of(need[k]);
        if (!a->names[k]) continue;
        if (events == w->interest[k] && (w->added[k] || !events)) continue;
        if (w->kind == EXCLUSIVE) {
            if (w->added[k]) control(a, w->set[0], EPOLL_CTL_DEL, a->fd[k][0], 0, 0);
            w->added[k] = events != 0;
            if (events) control(a, w->set[0], EPOLL_CTL_ADD, a->fd[k][0], events | EPOLLEXCLUSIVE, TAG | (unsigned)k);
        } else {
            bool drop = !events && w->kind != KEPT_LEVEL && chance(&a->rng, 2);
            for (int i = 0; i < w->sets; i++)
                control(a, w->set[i], !w->added[k] ? EPOLL_CTL_ADD : drop ? EPOLL_CTL_DEL : EPOLL_CTL_MOD, a->fd[k][0],
                        events | (w->kind == ONESHOT ? (uint32_t)EPOLLONESHOT : 0u), TAG | (unsigned)k);
            w->added[k] = !drop;
        }
        w->interest[k] = events;
    }
}

static int wait_set(struct actor *a, int set, struct epoll_event *ev, int max, int ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    switch (below(&a->rng, 4)) {
    case 0: counted(a->e, C_epoll_pwait); return epoll_pwait(set, ev, max, ms, NULL);
    case 1: counted(a->e, C_epoll_pwait2); return epoll_pwait2(set, ev, max, ms < 0 ? NULL : &t, NULL);
    default: counted(a->e, C_epoll_wait); return epoll_wait(set, ev, max, ms);
    }
}

// One wait without epoll. Fills `got` and returns what the call did.
static int wait_plain(struct actor *a, const unsigned need[CONNS], unsigned got[CONNS], int ms) {
    struct pollfd p[CONNS + 1];
    int at[CONNS + 1], n = 0, top = 0, done;
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    struct timeval tv = {ms / 1000, ms % 1000 * 1000};
    fd_set r, w, x;
    FD_ZERO(&r);
    FD_ZERO(&w);
    FD_ZERO(&x);
    for (int k = 0; k < a->e->nconn; k++) {
        if (!need[k]) continue;
        int fd = any_fd(a, k);
        at[n] = k;
        p[n++] = (struct pollfd){.fd = fd, .events = (short)((need[k] & IN ? POLLIN : 0) | (need[k] & OUT ? POLLOUT : 0))};
        if (need[k] & IN) FD_SET(fd, &r);
        if (need[k] & OUT) FD_SET(fd, &w);
        FD_SET(fd, &x);
        if (fd >= top) top = fd + 1;
    }
    int call = (int)below(&a->rng, 6);
    if (top > FD_SETSIZE && (call == 2 || call == 3)) call = 0;
    if (call != 2 && call != 3 && chance(&a->rng, 4)) at[n] = -1, p[n++] = (struct pollfd){.fd = -1, .events = POLLIN, .revents = 77};
    switch (call) {
    case 0: counted(a->e, C_poll), done = poll(p, (nfds_t)n, ms); break;
    case 1: counted(a->e, C_ppoll), done = ppoll(p, (nfds_t)n, ms < 0 ? NULL : &t, NULL); break;
    case 2: counted(a->e, C_select), done = select(top, &r, &w, &x, ms < 0 ? NULL : &tv); break;
    case 3: counted(a->e, C_pselect), done = pselect(top, &r, &w, &x, ms < 0 ? NULL : &t, NULL); break;
    case 4: counted(a->e, C_poll_chk), done = __poll_chk(p, (nfds_t)n, ms, sizeof p); break;
    default: counted(a->e, C_ppoll_chk), done = __ppoll_chk(p, (nfds_t)n, ms < 0 ? NULL : &t, NULL, sizeof p);
    }
    if (done < 0) return done;
    int seen = 0;
    for (int i = 0; i < n; i++) {
        int k = at[i];
        if (call == 2 || call == 3) {
            int fd = p[i].fd;
            if (FD_ISSET(fd, &x)) fail(a->e, "select reports an exception on connection %d", k);
            if (FD_ISSET(fd, &r)) got[k] |= IN, seen++;
            if (FD_ISSET(fd, &w)) got[k] |= OUT, seen++;
        } else {
            if (k < 0 && p[i].revents) fail(a->e, "poll reports %#x for fd -1", p[i].revents);
            if (k < 0 || !p[i].revents) continue;
            seen++;
            if (p[i].revents & ~p[i].events) fail(a->e, "poll asked for %#x on connection %d reports %#x", p[i].events, k, p[i].revents);
            got[k] |= (p[i].revents & POLLIN ? IN : 0u) | (p[i].revents & POLLOUT ? OUT : 0u);
        }
        if (k >= 0 && got[k] & ~need[k]) fail(a->e, "connection %d: reported %u, needed %u", k, got[k], need[k]);
    }
    if (seen != done) fail(a->e, "%s returned %d and reports %d", call == 2 || call == 3 ? "select" : "poll", done, seen);
    return done;
}

static void events_to_got(struct actor *a, struct waiter *w, const struct epoll_event *ev, int n, const unsigned need[CONNS], unsigned got[CONNS]) {
    bool edge = edge_triggered(w->kind);
    if (n == 0) return;
    for (int i = 0; i < n; i++) {
        uint64_t k = ev[i].data.u64 & 0xffff;
        if ((ev[i].data.u64 & ~0xffffull) != TAG || k >= (uint64_t)a->e->nconn) fail(a->e, "epoll returned data %#llx that nobody registered", (unsigned long long)ev[i].data.u64);
        if (!ev[i].events) fail(a->e, "epoll reports connection %d with no event", (int)k);
        for (int j = 0; j < i; j++)
            if (ev[j].data.u64 == ev[i].data.u64) fail(a->e, "epoll (kind %d) reports connection %d twice: %#x and %#x", (int)w->kind, (int)k, ev[j].events, ev[i].events);
        uint32_t asked = edge ? EPOLLIN | EPOLLOUT : events_of(need[k]);
        if (ev[i].events & ~asked) fail(a->e, "epoll (kind %d) asked for %#x on connection %d reports %#x", w->kind, asked, (int)k, ev[i].events);
        got[k] |= (ev[i].events & EPOLLIN ? IN : 0u) | (ev[i].events & EPOLLOUT ? OUT : 0u);
        if (w->kind == ONESHOT) w->interest[k] = ~0u;  // disarmed: to be armed again by MOD
    }
}

// Waits until something needed is ready; what is, is in `got`. Returns false when `ms` passed without.
static bool wait_ready(struct actor *a, struct waiter *w, const unsigned need[CONNS], unsigned got[CONNS], int ms) {
    struct epoll_event ev[CONNS + 2];
    uint64_t end = now_ns() + (uint64_t)(ms < 0 ? 0 : ms) * 1000000u;
    memset(got, 0, CONNS * sizeof *got);
    if (w->kind != MIXED && w->kind != SPIN) register_interest(a, w, need);
    for (;;) {
        int left = ms < 0 ? -1 : (int)((int64_t)(end - now_ns()) / 1000000), n;
        if (left < 0 && ms >= 0) left = 0;
        int set = w->set[w->kind == SEVERAL ? below(&a->rng, SETS) : 0];
        // A single place to put events in, at times: the others must come with the next call.
        int places = chance(&a->rng, 4) ? 1 : CONNS + 2;
        if (w->kind == MIXED) {
            n = wait_plain(a, need, got, left);
        } else if (w->kind == NESTED || w->kind == NESTED_POLL) {
            if (w->kind == NESTED) {
                n = wait_set(a, w->outer, ev, places, left);
                if (n > 0 && (n != 1 || ev[0].data.u64 != (TAG | 0xff) || ev[0].events != EPOLLIN)) fail(a->e, "the outer epoll set reports %d events, the first %#x", n, ev[0].events);
            } else {
                struct pollfd p = {.fd = set, .events = POLLIN};
                n = poll(&p, 1, left);
                if (n > 0 && p.revents != POLLIN) fail(a->e, "poll of an epoll set reports %#x", p.revents);
            }
            if (n > 0) {
                n = wait_set(a, set, ev, places, 0);
                if (n == 0 && a->alone) spurious(a->e, "an epoll set was reported readable and has no event");
                if (n > 0) events_to_got(a, w, ev, n, need, got);
                if (n == 0) continue;
            }
        } else {
            n = wait_set(a, set, ev, places, left);
            if (n > 0) events_to_got(a, w, ev, n, need, got);
            if (n > 0 && w->kind == SEVERAL && a->alone) {  // another set must say the same, or more by now
                unsigned also[CONNS] = {0};
                // Within moments, not within one call: whoever is to wake this set may have been interrupted on its way.
                int other = w->set[below(&a->rng, SETS)], m = 0;
                for (uint64_t give_up = now_ns() + a->e->patience_ms * 1000000u; now_ns() < give_up;) {
                    m = wait_set(a, other, ev, CONNS + 2, 0);
                    if (m > 0) events_to_got(a, w, ev, m, need, also);
                    bool all = true;
                    for (int k = 0; k < CONNS; k++) all = all && !(got[k] & ~also[k]);
                    if (all) break;
                    usleep(100);
                }
                for (int k = 0; k < CONNS && m >= 0; k++)
                    if (got[k] & ~also[k]) fail(a->e, "one epoll set reports %u on connection %d, another %u", got[k], k, also[k]);
            }
        }
        if (n > 0) return true;
        if (n < 0 && errno != EINTR) fail(a->e, "waiting (kind %d): %s", w->kind, strerror(errno));
        if (n == 0 && ms < 0) fail(a->e, "waiting (kind %d) without a time limit returned nothing", w->kind);
        if (n == 0 && now_ns() >= end) return false;
    }
}
