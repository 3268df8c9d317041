// Without SA_RESTART a signal ends a wait with EINTR; with it the call goes on; poll and epoll_wait always end.
#include "check.h"

static volatile sig_atomic_t seen, counted;

// The third signal of those that are counted lets the peer send.
static void on_signal(int sig) {
    (void)sig;
    if (++seen == 3 && counted) tell();
}

static pthread_t waiter;
static volatile int stop;

// Signals the waiting thread again and again: the first may come before it waits.
static void *disturb(void *unused) {
    (void)unused;
    while (!stop) pthread_kill(waiter, SIGUSR1), sleep_ms(20);
    return NULL;
}

static void handle(int flags) {
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = flags};
    IS(sigaction(SIGUSR1, &act, NULL), 0);
}

static void peer(int fd) {
    uint8_t *much = calloc(1, 64 << 20);
    hear();
    put_pattern(fd, 100, 1);
    hear();  // until here nothing is read
    while (recv(fd, much, 64 << 20, 0) > 0) {}
}

int main(void) {
    char text[100];
    int fd = with_peer(peer), set = epoll_create1(0);
    uint8_t *much = calloc(1, 64 << 20);
    pthread_t thread;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    struct epoll_event ev;
    fd_set r;
    waiter = pthread_self();
    handle(0);
    IS(pthread_create(&thread, NULL, disturb, NULL), 0);
    FAILS(recv(fd, text, 100, 0), EINTR);
    FAILS(read(fd, text, 100), EINTR);
    say("recv and read ended with EINTR");
    handle(SA_RESTART);
    FAILS(poll(&p, 1, PATIENCE), EINTR);
    FD_ZERO(&r);
    FD_SET(fd, &r);
    FAILS(select(fd + 1, &r, NULL, NULL, NULL), EINTR);
    IS(epoll_add(set, fd, EPOLLIN), 0);
    FAILS(epoll_wait(set, &ev, 1, PATIENCE), EINTR);
    say("poll, select and epoll_wait ended with EINTR in spite of SA_RESTART");
    struct timeval t = {PATIENCE / 1000, 0};
    IS(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t), 0);
    FAILS(recv(fd, text, 100, 0), EINTR);
    t.tv_sec = 0;
    IS(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t), 0);
    say("recv with a timeout ended with EINTR in spite of SA_RESTART");
    counted = 1;
    seen = 0;
    IS(recv(fd, text, 100, 0), 100);
    counted = 0;
    CHECK(seen > 2);
    say("recv went on with SA_RESTART");
    // Fill the connection: at last a send can take nothing.
    handle(0);
    ssize_t n;
    do n = send(fd, much, 64 << 20, MSG_NOSIGNAL);
    while (n > 0);
    CHECK(n == -1 && errno == EINTR);
    say("send ended with EINTR");
    stop = 1;
    pthread_join(thread, NULL);
    tell();
    close(fd);
    peer_ends();
}
