// splice from a pipe into a socket that does not block, as proxies do it: between writes, past a reader that takes nothing for
// a while, on an edge, out of a pipe that is empty, ended, of packets, or no pipe, and into what was shut.
#include "check.h"

enum { MUCH = 20000000 };

static volatile int signals;
static void count(int signal) { signals += signal == SIGPIPE; }

static void peer(int fd) {
    get_pattern(fd, 1000, 1);
    put_pattern(fd, 1000, 1);
    hear();
    get_pattern(fd, MUCH, 2);
    get_pattern(fd, 1000, 3);
    get_pattern(fd, 1000, 4);
    put_pattern(fd, 1000, 5);
    warm_up(fd, true);
    char end;
    IS(recv(fd, &end, 1, 0), 0);
}

// Puts `n` bytes of the pattern from `at` into the pipe: as many as have room.
static size_t pour(int pipe, size_t at, size_t n, int salt) {
    uint8_t text[8192];
    if (n > sizeof text) n = sizeof text;
    fill(text, at, n, salt);
    ssize_t put = write(pipe, text, n);
    CHECK(put > 0 || (put < 0 && errno == EAGAIN));
    return put > 0 ? (size_t)put : 0;
}

static void all(int from, int fd, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t put = splice(from, NULL, fd, NULL, n - at, SPLICE_F_NONBLOCK);
        if (put < 0 && errno == EAGAIN) {
            struct pollfd p = {.fd = fd, .events = POLLOUT};
            CHECK(poll(&p, 1, PATIENCE) == 1);
            continue;
        }
        CHECK(put > 0);
        at += (size_t)put;
    }
}

int main(void) {
    int fd = with_peer(peer), p[2], packets[2], set = epoll_create1(0), waits = 0;
    IS(pipe2(p, O_NONBLOCK), 0);
    put_pattern(fd, 1000, 1);
    get_pattern(fd, 1000, 1);
    nonblocking(fd);
    FAILS(splice(p[0], NULL, fd, NULL, 1000, 0), EAGAIN);
    FAILS(splice(p[0], NULL, fd, NULL, 1000, SPLICE_F_NONBLOCK), EAGAIN);
    struct epoll_event event = {.events = EPOLLOUT | EPOLLET};
    IS(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
    IS(epoll_wait(set, &event, 1, PATIENCE), 1);
    for (size_t poured = 0, put = 0; put < MUCH;) {
        if (poured < MUCH) poured += pour(p[1], poured, MUCH - poured, 2);
        ssize_t n = splice(p[0], NULL, fd, NULL, poured - put, SPLICE_F_NONBLOCK);
        if (n < 0) {
            CHECK(errno == EAGAIN);
            if (!waits++) tell();
            IS(epoll_wait(set, &event, 1, PATIENCE), 1);
            continue;
        }
        CHECK(n > 0);
        put += (size_t)n;
    }
    CHECK(waits > 0);
    say("past a reader that took nothing");
    put_pattern(fd, 1000, 3);
    IS(pipe2(packets, O_DIRECT), 0);
    for (size_t at = 0; at < 1000; at += 100) {
        uint8_t text[100];
        fill(text, at, sizeof text, 4);
        IS(write(packets[1], text, sizeof text), (long)sizeof text);
        all(packets[0], fd, 30);
        all(packets[0], fd, 70);
    }
    get_pattern(fd, 1000, 5);
    say("packets");
    int file = memfd_create("file", 0);
    IS(write(file, p, sizeof p), (long)sizeof p);
    FAILS(splice(file, NULL, fd, NULL, 1000, 0), EINVAL);
    IS(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK), 0);
    warm_up(fd, false);
    nonblocking(fd);
    IS(write(p[1], "end", 3), 3);
    IS(close(p[1]), 0);
    signal(SIGPIPE, count);
    IS(shutdown(fd, SHUT_WR), 0);
    FAILS(splice(p[0], NULL, fd, NULL, 3, SPLICE_F_NONBLOCK), EPIPE);
    say("shut, %d signal", signals);
    peer_ends();
}
