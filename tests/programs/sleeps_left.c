// A thread that is cancelled in a sleep, or leaves it by siglongjmp, leaves nothing behind: no descriptor, and a connection that works.
#include "check.h"
#include <setjmp.h>

enum { TURNS = 40, SIZE = 3000, FEW = 12 };

static int fd, set;
static sigjmp_buf away;

static void leave(int signal) { (void)signal, siglongjmp(away, 1); }

static void in_recv(void) {
    char byte;
    IS(recv(fd, &byte, 1, 0), 1);
}

static void in_poll(void) {
    struct pollfd entry = {fd, POLLIN, 0};
    IS(poll(&entry, 1, -1), 1);
}

static void in_select(void) {
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(fd, &readable);
    IS(select(fd + 1, &readable, NULL, NULL, NULL), 1);
}

static void in_epoll(void) {
    struct epoll_event event;
    IS(epoll_wait(set, &event, 1, -1), 1);
}

static void (*const sleeps[])(void) = {in_recv, in_poll, in_select, in_epoll};

static void *asleep(void *of) {
    (*(void (*const *)(void))of)();
    return NULL;
}

static void answered(int round) {
    put_all(fd, "x", 1);
    in_poll();
    in_select();
    in_epoll();
    get_pattern(fd, SIZE, round);
}

// One turn of each.
static void leave_each(int round) {
    for (size_t i = 0; i < sizeof sleeps / sizeof *sleeps; i++) {
        pthread_t thread;
        void *result;
        IS(pthread_create(&thread, NULL, asleep, (void *)&sleeps[i]), 0);
        sleep_ms(2);
        IS(pthread_cancel(thread), 0);
        IS(pthread_join(thread, &result), 0);
        CHECK(result == PTHREAD_CANCELED);
        if (sigsetjmp(away, 1) == 0) {
            struct itimerval soon = {.it_value.tv_usec = 2000};
            IS(setitimer(ITIMER_REAL, &soon, NULL), 0);
            sleeps[i]();
            CHECK(!"woken by nothing");
        }
    }
    answered(round);
}

static void answers(int client) {
    char byte;
    for (int i = 0; i < TURNS; i++) {
        IS(read(client, &byte, 1), 1);
        put_pattern(client, SIZE, i);
    }
    IS(read(client, &byte, 1), 0);
}

int main(void) {
    fd = with_peer(answers);
    set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    IS(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
    struct sigaction handler = {.sa_handler = leave};
    IS(sigaction(SIGALRM, &handler, NULL), 0);
    int before = 0;
    for (int i = 0; i < TURNS; i++) {
        if (i == TURNS / 4) before = descriptors();
        leave_each(i);
    }
    int more = descriptors() - before;
    IS(more > FEW ? more : 0, 0);
    close(fd);
    peer_ends();
    say("%d sleeps left, by cancellation and by siglongjmp", (int)(TURNS * 2 * (sizeof sleeps / sizeof *sleeps)));
}
