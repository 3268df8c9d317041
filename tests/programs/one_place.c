// epoll_wait with one place: everything that is ready has its turn. And a wait that does not wait lets in the signals that its mask lets in.
#include "check.h"

static volatile int caught;

static void note(int signal) { (void)signal, caught++; }

// Others of the host connect, and are served, all the while.
static int elsewhere;
static struct sockaddr_in at_elsewhere;

static void somebody_connects(void) {
    int fd = connect_to(&at_elsewhere);
    close(accept_from(elsewhere));
    close(fd);
}

// Of 300 reports with some work in between, each of the `n` is told of in a fair number.
static void turns(int set, const int *fds, int n, void (*work)(void)) {
    int told[3] = {0};
    for (int i = 0; i < 300; i++) {
        struct epoll_event ev;
        if (work) work();
        IS(epoll_wait(set, &ev, 1, PATIENCE), 1);
        for (int k = 0; k < n; k++) told[k] += ev.data.fd == fds[k];
        if (i % 3) usleep(80);
    }
    for (int k = 0; k < n; k++) CHECK(told[k] >= 20);
}

int main(void) {
    int a[2], b[2], ready = eventfd(1, 0), set = epoll_create1(0), inner = epoll_create1(0), outer = epoll_create1(0);
    pair_here(a), pair_here(b);
    put_all(a[1], "x", 1), put_all(b[1], "x", 1);
    IS(epoll_add(set, a[0], EPOLLIN), 0);
    IS(epoll_add(set, b[0], EPOLLIN), 0);
    turns(set, (int[]){a[0], b[0]}, 2, NULL);
    say("two sockets");
    IS(epoll_add(set, ready, EPOLLIN), 0);
    turns(set, (int[]){a[0], b[0], ready}, 3, NULL);
    say("and an eventfd");
    elsewhere = listen_on(&at_elsewhere);
    turns(set, (int[]){a[0], b[0], ready}, 3, somebody_connects);
    say("beside others that connect");
    IS(epoll_add(inner, b[0], EPOLLIN), 0);
    IS(epoll_add(outer, a[0], EPOLLIN), 0);
    IS(epoll_add(outer, inner, EPOLLIN), 0);
    IS(epoll_add(outer, ready, EPOLLIN), 0);
    turns(outer, (int[]){a[0], inner, ready}, 3, NULL);
    say("and an inner set");

    sigset_t blocked, before;
    struct timespec now = {0, 0};
    struct epoll_event ev;
    char text[1];
    get_all(a[0], text, 1), get_all(b[0], text, 1);
    IS(epoll_ctl(set, EPOLL_CTL_DEL, ready, NULL), 0);
    signal(SIGUSR1, note);
    sigemptyset(&blocked), sigaddset(&blocked, SIGUSR1);
    IS(sigprocmask(SIG_BLOCK, &blocked, &before), 0);
    for (int way = 0; way < 3; way++) {
        struct pollfd p = {.fd = a[0], .events = POLLIN};
        fd_set read;
        FD_ZERO(&read);
        FD_SET(a[0], &read);
        raise(SIGUSR1);
        if (way == 0) FAILS(ppoll(&p, 1, &now, &before), EINTR);
        else if (way == 1) FAILS(pselect(a[0] + 1, &read, NULL, NULL, &now, &before), EINTR);
        else epoll_pwait(set, &ev, 1, 0, &before);
        sigprocmask(SIG_SETMASK, &before, NULL);
        sigprocmask(SIG_BLOCK, &blocked, NULL);
        IS(caught, way + 1);
    }
    say("signals");
}
