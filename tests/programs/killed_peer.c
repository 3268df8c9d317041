// SIGKILL: end-of-file where the dead process had consumed everything, a reset where it had not; whoever waits is woken.
#include "check.h"

static void idle(int fd) {
    (void)fd;
    for (;;) pause();
}

static void talk(int fd) {
    put_pattern(fd, 5000, 2);
    idle(fd);
}

static void half(int fd) {
    shutdown(fd, SHUT_WR);
    idle(fd);
}

static void *kill_later(void *unused) {
    (void)unused;
    sleep_ms(150);
    IS(kill(other, SIGKILL), 0);
    return NULL;
}

static int doomed(void) {
    pthread_t thread;
    int fd = with_peer(idle);
    IS(pthread_create(&thread, NULL, kill_later, NULL), 0);
    pthread_detach(thread);
    return fd;
}

static void killed(int fd) {
    CHECK(WTERMSIG(ended(other)) == SIGKILL);
    close(fd);
}

int main(void) {
    pthread_t thread;
    int fd = doomed();
    IS(recv(fd, (char[1]){0}, 1, 0), 0);
    say("recv: end of file");
    killed(fd);
    fd = doomed();
    CHECK(polled(fd, POLLIN | POLLRDHUP, PATIENCE) & POLLIN);
    IS(recv(fd, (char[1]){0}, 1, MSG_DONTWAIT), 0);
    say("poll: end of file");
    killed(fd);
    fd = doomed();
    int set = epoll_create1(0);
    IS(epoll_add(set, fd, EPOLLIN | EPOLLET), 0);
    CHECK(epolled(set, fd, PATIENCE) & EPOLLIN);
    IS(recv(fd, (char[1]){0}, 1, MSG_DONTWAIT), 0);
    say("epoll: end of file");
    killed(fd);
    fd = doomed();
    put_pattern(fd, 1000, 1);  // never read
    FAILS(recv(fd, (char[1]){0}, 1, 0), ECONNRESET);
    say("recv: reset");
    killed(fd);
    // Behind bytes that the same receive takes.
    fd = with_peer(talk);
    set = epoll_create1(0);
    put_pattern(fd, 1000, 1);  // never read
    for (int n = 0; n < 5000; sleep_ms(5)) IS(ioctl(fd, FIONREAD, &n), 0);
    IS(kill(other, SIGKILL), 0);
    CHECK(WTERMSIG(ended(other)) == SIGKILL);
    IS(epoll_add(set, fd, EPOLLIN | EPOLLRDHUP | EPOLLET), 0);
    CHECK(epolled(set, fd, PATIENCE) & EPOLLIN);
    IS(recv(fd, (char[10000]){0}, 10000, MSG_DONTWAIT), 5000);
    FAILS(recv(fd, (char[1]){0}, 1, MSG_DONTWAIT), ECONNRESET);
    say("recv: bytes, then reset");
    close(fd);
    // Sends that do not wait are refused before they fill whatever carries them.
    fd = with_peer(idle);
    nonblocking(fd);
    put_pattern(fd, 1000, 1);  // never read
    IS(kill(other, SIGKILL), 0);
    CHECK(WTERMSIG(ended(other)) == SIGKILL);
    ssize_t sent = 0;
    for (int tries = 0; tries < PATIENCE && sent >= 0; tries++, sleep_ms(1)) sent = send(fd, "x", 1, MSG_NOSIGNAL);
    CHECK(sent == -1 && (errno == ECONNRESET || errno == EPIPE));
    say("send without waiting: broken");
    close(fd);
    // Asleep because there is no room.
    fd = doomed();
    char *much = calloc(1, 1 << 20);
    ssize_t n;
    do n = send(fd, much, 1 << 20, MSG_NOSIGNAL);
    while (n > 0);
    CHECK(errno == ECONNRESET || errno == EPIPE);
    say("send: broken");
    killed(fd);
    // The same, asleep on a set that asks for nothing else; and with one that had ended its own stream, so that there is no second end that would tell of its death.
    for (int way = 0; way < 4; way++) {
        bool ends = way & 1;
        fd = with_peer(ends ? half : idle);
        if (ends) CHECK(polled(fd, POLLRDHUP, PATIENCE) & POLLRDHUP);
        put_pattern(fd, 1000, 1);  // never read
        set = epoll_create1(0);
        nonblocking(fd);
        while ((n = send(fd, much, 1 << 20, MSG_NOSIGNAL)) > 0) continue;
        CHECK(n == -1 && errno == EAGAIN);
        IS(epoll_add(set, fd, EPOLLOUT), 0);
        IS(pthread_create(&thread, NULL, kill_later, NULL), 0);
        if (way < 2) {
            // What carries the bytes may have found room meanwhile.
            while ((n = send(fd, much, 1 << 20, MSG_NOSIGNAL)) > 0 || errno == EAGAIN) CHECK(epolled(set, fd, PATIENCE) != 0);
        } else {
            IS(fcntl(fd, F_SETFL, 0), 0);
            while ((n = send(fd, much, 1 << 20, MSG_NOSIGNAL)) > 0) continue;
        }
        CHECK(errno == ECONNRESET || errno == EPIPE);
        IS(pthread_join(thread, NULL), 0);
        say("a full connection%s: broken", ends ? " to one that had ended its stream" : "");
        killed(fd);
    }
}
