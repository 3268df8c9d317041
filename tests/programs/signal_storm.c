// Signals at every point: handlers come as fast as they are taken, and send and receive on a connection that the thread itself uses, too, and waits for, while the program sends and receives by all
// means. No byte is lost, and no call ends otherwise than it may.
#include "check.h"

enum { TURNS = 240, LENGTH = 20000 };

static int bells[2];
static uint64_t sent, received;
static volatile sig_atomic_t handled;

static void send_bell(void) {
    ssize_t n = send(bells[0], "bell", 4, MSG_DONTWAIT | MSG_NOSIGNAL);
    CHECK(n > 0 || errno == EAGAIN);
    if (n > 0) __atomic_fetch_add(&sent, (uint64_t)n, __ATOMIC_RELAXED);
}

static void take_bells(void) {
    char text[64];
    ssize_t n = recv(bells[1], text, sizeof text, MSG_DONTWAIT);
    CHECK(n > 0 || errno == EAGAIN);
    if (n > 0) __atomic_fetch_add(&received, (uint64_t)n, __ATOMIC_RELAXED);
}

// Once in a while: a handler that sends each time is all that would ever run.
static void on_signal(int sig) {
    int saved = errno;
    if (handled++ % 8 == 0) {
        send_bell();
        // Not of those that came without SA_RESTART: they may have interrupted the look of the others.
        if (sig == SIGUSR1) take_bells();
    }
    errno = saved;
}

static pthread_t worker;
static volatile bool over;

static void *disturb(void *unused) {
    for (int i = 0; !over; i++) {
        pthread_kill(worker, i % 2 ? SIGUSR1 : SIGUSR2);
        struct timespec pause = {.tv_nsec = 20000};
        nanosleep(&pause, NULL);
    }
    return unused;
}

static void peer(int fd) {
    for (int i = 0; i < TURNS; i++) get_pattern(fd, LENGTH, i), put_pattern(fd, LENGTH, i + 1);
}

static int until_told(int fd, int events, int set, int way) {
    struct pollfd p = {.fd = fd, .events = (short)events};
    struct epoll_event event = {.events = (uint32_t)events, .data.fd = fd};
    fd_set wanted;
    FD_ZERO(&wanted);
    FD_SET(fd, &wanted);
    struct timeval limit = {.tv_sec = PATIENCE / 1000};
    if (way == 1) return poll(&p, 1, PATIENCE);
    if (way == 2) return select(fd + 1, events == POLLIN ? &wanted : NULL, events == POLLOUT ? &wanted : NULL, NULL, &limit);
    CHECK(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == 0);
    return epoll_wait(set, &event, 1, PATIENCE);
}

// All of it, by blocking calls (way 0) or by calls that do not wait.
static void transfer(int fd, uint8_t *text, bool in, int set, int way) {
    int flags = (way == 0 ? 0 : MSG_DONTWAIT) | MSG_NOSIGNAL;
    for (size_t at = 0; at < LENGTH;) {
        struct iovec two[] = {{text + at, (LENGTH - at) / 2}, {text + at + (LENGTH - at) / 2, LENGTH - at - (LENGTH - at) / 2}};
        struct msghdr message = {.msg_iov = two, .msg_iovlen = 2};
        ssize_t n = in ? recvmsg(fd, &message, flags) : sendmsg(fd, &message, flags);
        if (n > 0) {
            at += (size_t)n;
            continue;
        }
        CHECK(n < 0 && (errno == EINTR || (way != 0 && errno == EAGAIN)));
        if (errno == EINTR) continue;
        int told = until_told(fd, in ? POLLIN : POLLOUT, set, way);
        CHECK(told == 1 || (told == -1 && errno == EINTR));
        send_bell();
        take_bells();
    }
}

int main(void) {
    struct sockaddr_in at;
    int listener = listen_on(&at), set = epoll_create1(0);
    bells[0] = connect_to(&at), bells[1] = accept_from(listener);
    for (int i = 0; i < ROUNDS; i++) put_pattern(bells[0], 10, i), get_pattern(bells[1], 10, i), put_pattern(bells[1], 10, i), get_pattern(bells[0], 10, i);
    int fd = with_peer(peer);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    IS(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
    event.data.fd = bells[1];
    IS(epoll_ctl(set, EPOLL_CTL_ADD, bells[1], &event), 0);

    struct sigaction goes_on = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, ends = {.sa_handler = on_signal};
    sigaddset(&goes_on.sa_mask, SIGUSR2), sigaddset(&ends.sa_mask, SIGUSR1);
    IS(sigaction(SIGUSR1, &goes_on, NULL), 0);
    IS(sigaction(SIGUSR2, &ends, NULL), 0);
    worker = pthread_self();
    pthread_t thread;
    IS(pthread_create(&thread, NULL, disturb, NULL), 0);

    static uint8_t text[LENGTH];
    for (int i = 0; i < TURNS; i++) {
        fill(text, 0, LENGTH, i);
        transfer(fd, text, false, set, i % 4);
        transfer(fd, text, true, set, i % 4);
        same(text, 0, LENGTH, i + 1);
        // A busy machine may not have let the other thread run at all.
        for (int ms = 0; handled < i / 2 && ms < PATIENCE; ms++) poll(NULL, 0, 1);
    }
    over = true;
    IS(pthread_join(thread, NULL), 0);
    while (received < sent) {
        char rest[256];
        ssize_t n = recv(bells[1], rest, sizeof rest, 0);
        if (n < 0 && errno == EINTR) continue;
        CHECK(n > 0);
        received += (uint64_t)n;
    }
    IS(recv(bells[1], (char[1]){0}, 1, MSG_DONTWAIT), -1);
    CHECK(handled > 100);
    CHECK(received == sent);
    say("%d turns", TURNS);
    peer_ends();
}
