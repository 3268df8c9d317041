// An accepted connection is used for the first time where it is not expected: by a handler of a signal that interrupted the work on an epoll set, and by a thread while another one
// adds it to a set, or closes it. Whoever then sleeps on the set is woken by what comes.
#include "check.h"

enum { TURNS = 150, CLOSED = 300 };

static int set, idle[2];
static volatile int fresh = -1;
static volatile sig_atomic_t used;
static unsigned seed = 1;

static void first_use(int fd) { IS(send(fd, "x", 1, MSG_NOSIGNAL), 1); }

static void on_signal(int sig) {
    (void)sig;
    int saved = errno;
    first_use(fresh);
    used = 1;
    errno = saved;
}

// The other ends, one after the other.
static void peers(const struct sockaddr_in *at) {
    for (int i = 0; i < 2 * TURNS; i++) {
        int fd = connect_to(at);
        char byte;
        get_all(fd, &byte, 1);
        warm_up(fd, true);
        hear();
        put_all(fd, &byte, 1);
        get_all(fd, &byte, 1);
        close(fd);
    }
    for (int i = 0; i < CLOSED; i++) {
        int fd = connect_to(at);
        while (recv(fd, &(char){0}, 1, 0) > 0) {}
        close(fd);
    }
    exit(0);
}

// A sleeper on the set hears of the next byte.
static void is_heard(int fd) {
    char byte;
    tell();
    IS(epolled(set, fd, PATIENCE), EPOLLIN);
    get_all(fd, &byte, 1);
    put_all(fd, &byte, 1);
    IS(close(fd), 0);
}

static void by_a_handler(int listener) {
    int fd = accept_from(listener);
    IS(epoll_add(set, fd, EPOLLIN), 0);
    fresh = fd, used = 0;
    struct itimerval soon = {.it_value = {.tv_usec = 50 + rand_r(&seed) % 200}};
    IS(setitimer(ITIMER_REAL, &soon, NULL), 0);
    for (int i = 0; !used; i++) {
        IS(epoll_mod(set, idle[0], i % 2 ? EPOLLIN | EPOLLET : EPOLLIN), 0);
        CHECK(epoll_wait(set, &(struct epoll_event){0}, 1, 0) >= 0);
    }
    warm_up(fd, false);
    is_heard(fd);
}

static void *uses(void *go) {
    while (!*(volatile int *)go) {}
    first_use(fresh);
    warm_up(fresh, false);
    return NULL;
}

static void *uses_once(void *go) {
    while (!*(volatile int *)go) {}
    CHECK(send(fresh, "x", 1, MSG_NOSIGNAL) == 1 || errno == EBADF);
    return NULL;
}

static pthread_t beside(void *(*work)(void *), volatile int *go) {
    pthread_t thread;
    IS(pthread_create(&thread, NULL, work, (void *)go), 0);
    sleep_ms(1);
    *go = 1;
    for (volatile unsigned i = rand_r(&seed) % 4000; i > 0; i--) {}
    return thread;
}

static void while_it_is_added(int listener) {
    volatile int go = 0;
    fresh = accept_from(listener);
    pthread_t thread = beside(uses, &go);
    IS(epoll_add(set, fresh, EPOLLIN), 0);
    IS(pthread_join(thread, NULL), 0);
    is_heard(fresh);
}

static void while_it_is_closed(int listener) {
    volatile int go = 0;
    fresh = accept_from(listener);
    pthread_t thread = beside(uses_once, &go);
    IS(close(fresh), 0);
    IS(pthread_join(thread, NULL), 0);
}

int main(void) {
    struct sockaddr_in at;
    int listener = listen_on(&at), sides[2];
    IS(socketpair(AF_UNIX, SOCK_STREAM, 0, sides), 0);
    other = fork();
    CHECK(other >= 0);
    side = sides[other == 0];
    close(sides[other != 0]);
    if (other == 0) peers(&at);
    pair_here(idle);
    set = epoll_create1(0);
    IS(epoll_add(set, idle[0], EPOLLIN), 0);
    signal(SIGALRM, on_signal);
    for (int i = 0; i < TURNS; i++) by_a_handler(listener);
    for (int i = 0; i < TURNS; i++) while_it_is_added(listener);
    for (int i = 0; i < CLOSED; i++) while_it_is_closed(listener);
    peer_ends();
    say("%d connections, and %d closed", 2 * TURNS, CLOSED);
}
