// Steps that ask what is ready.
#pragma once
#include "make.h"

// `add SET SLOT EVENTS DATA`, `mod` likewise, `del SET SLOT`.
static void do_ctl(const struct words *w) {
    struct slot *set = open_at(w, 1), *s = set ? open_at(w, 2) : NULL;
    if (!s) return;
    struct epoll_event e = {.events = flags(EVENTS, word(w, 3))};
    e.data.u64 = (uint64_t)number(w, 4);
    int op = !strcmp(w->is[0], "add")   ? EPOLL_CTL_ADD
             : !strcmp(w->is[0], "mod") ? EPOLL_CTL_MOD
                                        : EPOLL_CTL_DEL;
    say_result(w->is[0], epoll_ctl(set->fd, op, s->fd, &e));
}

// `wait SET COUNT MILLISECONDS`, `pwait` likewise: events with their data, in their order.
static void do_wait(const struct words *w) {
    struct slot *set = open_at(w, 1);
    if (!set) return;
    struct epoll_event e[16];
    int count = (int)number(w, 2), ms = (int)number(w, 3);
    if (count > 16) count = 16;
    sigset_t none;
    sigemptyset(&none);
    bool masks = !strcmp(w->is[0], "pwait");
    int n = masks ? epoll_pwait(set->fd, e, count, ms, &none) : epoll_wait(set->fd, e, count, ms);
    if (n < 0) return say_result("wait", n);
    say("wait %d:", n);
    for (int i = 0; i < n; i++) {
        say(" ");
        say_flags(EVENTS, e[i].events);
        say("/%llu", (unsigned long long)e[i].data.u64);
    }
}

// `poll MILLISECONDS SLOT:EVENTS …`, `ppoll` likewise.
static void do_poll(const struct words *w) {
    struct pollfd fds[WORDS];
    int slot_of[WORDS], count = 0, ms = (int)number(w, 1);
    for (int i = 2; i < w->count; i++) {
        char *colon = strchr(w->is[i], ':');
        struct slot *s = place(w, i);
        if (!colon || s->kind == NOTHING) continue;
        fds[count] = (struct pollfd){s->fd, (short)flags(EVENTS, colon + 1), 0};
        slot_of[count++] = (int)(s - slots);
    }
    struct timespec t = {0, ms * 1000000L};
    bool precise = !strcmp(w->is[0], "ppoll");
    nfds_t all = (nfds_t)count;
    int n = precise ? ppoll(fds, all, &t, NULL) : poll(fds, all, ms);
    if (n < 0) return say_result("poll", n);
    say("poll %d:", n);
    for (int i = 0; i < count; i++) {
        if (!fds[i].revents) continue;
        say(" ");
        say_flags(EVENTS, (unsigned short)fds[i].revents);
        say("/%d", slot_of[i]);
    }
}

// `select MILLISECONDS SLOT:rwx …`, with the letters of the sets that it is in.
static void do_select(const struct words *w) {
    fd_set sets[3];
    for (int k = 0; k < 3; k++) FD_ZERO(&sets[k]);
    int top = -1, ms = (int)number(w, 1);
    for (int i = 2; i < w->count; i++) {
        char *colon = strchr(w->is[i], ':');
        struct slot *s = place(w, i);
        if (!colon || s->kind == NOTHING || s->fd >= FD_SETSIZE) continue;
        for (int k = 0; k < 3; k++) {
            if (strchr(colon, "rwx"[k])) FD_SET(s->fd, &sets[k]);
        }
        if (s->fd > top) top = s->fd;
    }
    struct timeval t = {0, ms * 1000};
    int n = select(top + 1, &sets[0], &sets[1], &sets[2], &t);
    if (n < 0) return say_result("select", n);
    say("select %d:", n);
    for (int i = 0; i < SLOTS && n > 0; i++) {
        if (slots[i].kind == NOTHING || slots[i].fd >= FD_SETSIZE) continue;
        for (int k = 0; k < 3; k++) {
            if (FD_ISSET(slots[i].fd, &sets[k])) say(" %c/%d", "rwx"[k], i);
        }
    }
}
