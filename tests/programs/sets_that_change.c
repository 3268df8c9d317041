// A thread sleeps on an epoll set, an outer set, or in poll or select of a set. Another adds to it, or changes it: the first hears of what is there, and of what comes.
#include "check.h"

enum how { WAITS, POLLS, SELECTS };
struct sleeper {
    pthread_t thread;
    enum how how;
    int set, got;
};

static void *sleeping(void *arg) {
    struct sleeper *s = arg;
    struct epoll_event ev[4];
    struct pollfd p = {.fd = s->set, .events = POLLIN};
    struct timeval limit = {PATIENCE / 1000, 0};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(s->set, &set);
    s->got = s->how == WAITS ? epoll_wait(s->set, ev, 4, PATIENCE) : s->how == POLLS ? poll(&p, 1, PATIENCE) : select(s->set + 1, &set, NULL, NULL, &limit);
    return NULL;
}

static void begin(struct sleeper *s, enum how how, int set) {
    *s = (struct sleeper){.how = how, .set = set};
    IS(pthread_create(&s->thread, NULL, sleeping, s), 0);
    sleep_ms(100);
}

static void heard(struct sleeper *s) {
    IS(pthread_join(s->thread, NULL), 0);
    IS(s->got, 1);
}

static void *one_byte(void *fd) {
    char c;
    IS(recv((int)(long)fd, &c, 1, 0), 1);
    return NULL;
}

// A pair whose first end has slept in its receive: no wish is left of the time before the ring.
static void slept_pair(int ends[2]) {
    pair_here(ends);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        IS(pthread_create(&thread, NULL, one_byte, (void *)(long)ends[0]), 0);
        sleep_ms(20);
        put_all(ends[1], "", 1);
        IS(pthread_join(thread, NULL), 0);
    }
}

// `unread`: the byte is there before the set is changed.
static void add(enum how how, int set, int to, bool unread) {
    int ends[2];
    struct sleeper s;
    slept_pair(ends);
    if (unread) put_all(ends[1], "x", 1), sleep_ms(20);
    begin(&s, how, set);
    IS(epoll_add(to, ends[0], EPOLLIN), 0);
    sleep_ms(50);
    if (!unread) put_all(ends[1], "x", 1);
    heard(&s);
    close(ends[0]), close(ends[1]);
}

static int with(int fd) {
    int set = epoll_create1(0);
    IS(epoll_add(set, fd, EPOLLIN), 0);
    return set;
}

int main(void) {
    int quiet[2], ends[2], plain = eventfd(0, 0);
    struct sleeper s;
    slept_pair(quiet);
    for (int unread = 0; unread < 2; unread++) {
        int set = with(plain);
        add(WAITS, set, set, unread);
        set = epoll_create1(0);
        add(WAITS, set, set, unread);
        say("a set without sockets");
        for (enum how how = WAITS; how <= SELECTS; how++) {
            set = with(quiet[0]);
            add(how, how == WAITS ? with(set) : set, set, unread);
        }
        say("from outside");
        slept_pair(ends);
        if (unread) put_all(ends[1], "x", 1), sleep_ms(20);
        int outer = with(quiet[0]), inner = with(ends[0]);
        begin(&s, WAITS, outer);
        IS(epoll_add(outer, inner, EPOLLIN), 0);
        sleep_ms(50);
        if (!unread) put_all(ends[1], "x", 1);
        heard(&s);
        say("an inner set");
        // The child has the set, and the parent's waiter is not its own.
        set = with(quiet[0]);
        IS(epolled(set, quiet[0], 20), 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            add(WAITS, set, set, unread);
            _exit(0);
        }
        IS(ended(child), 0);
        close(set);
        say("in a child");
    }
    slept_pair(ends);
    int set = epoll_create1(0), outer;
    IS(epoll_add(set, ends[0], 0), 0);
    outer = with(set);
    put_all(ends[1], "x", 1), sleep_ms(20);
    begin(&s, WAITS, outer);
    IS(epoll_mod(set, ends[0], EPOLLIN), 0);
    heard(&s);
    say("what is wanted changes");
}
