// An end that shuts down both ways and keeps its descriptor: its kernel answers what comes later with a reset. The other end's bytes go nowhere, and it hears of that.
#include "check.h"

enum { A_LOT = 64 << 20 };

static int ends[2];

static void both_at_once(int fd) { IS(shutdown(fd, SHUT_RDWR), 0); }

static void receiving_first(int fd) {
    IS(shutdown(fd, SHUT_RD), 0);
    IS(shutdown(fd, SHUT_WR), 0);
}

static void sending_first(int fd) {
    IS(shutdown(fd, SHUT_WR), 0);
    IS(shutdown(fd, SHUT_RD), 0);
}

static void (*const ways[])(int fd) = {both_at_once, receiving_first, sending_first};

// The first bytes are taken, and what comes after the reset is refused.
static void told_to_writer(void (*shuts)(int fd)) {
    char byte;
    pair_here(ends);
    shuts(ends[1]);
    IS(polled(ends[0], POLLIN | POLLOUT | POLLRDHUP, PATIENCE), POLLIN | POLLOUT | POLLRDHUP);
    IS(recv(ends[0], &byte, 1, 0), 0);
    IS(send(ends[0], "some", 4, MSG_NOSIGNAL), 4);
    IS(polled(ends[0], POLLIN | POLLOUT | POLLRDHUP, PATIENCE), POLLIN | POLLOUT | POLLRDHUP | POLLERR | POLLHUP);
    FAILS(send(ends[0], "more", 4, MSG_NOSIGNAL), EPIPE);
    FAILS(send(ends[0], "more", 4, MSG_NOSIGNAL), EPIPE);
    IS(recv(ends[0], &byte, 1, 0), 0);
    // Whoever shut down hears of the reset, once.
    IS(polled(ends[1], POLLIN, PATIENCE), POLLIN | POLLERR | POLLHUP);
    FAILS(recv(ends[1], &byte, 1, 0), ECONNRESET);
    IS(recv(ends[1], &byte, 1, 0), 0);
    FAILS(send(ends[1], "x", 1, MSG_NOSIGNAL), EPIPE);
    close(ends[0]), close(ends[1]);
}

// What came before is read, also behind the reset.
static void reads_what_came_before(void (*shuts)(int fd)) {
    char byte;
    pair_here(ends);
    put_pattern(ends[0], 1000, 3);
    put_pattern(ends[1], 1000, 4);
    shuts(ends[1]);
    get_pattern(ends[1], 500, 3);
    get_pattern(ends[0], 1000, 4);
    IS(recv(ends[0], &byte, 1, 0), 0);
    IS(send(ends[0], "some", 4, MSG_NOSIGNAL), 4);
    sleep_ms(5);
    uint8_t rest[600];
    IS(recv(ends[1], rest, sizeof rest, 0), 500);
    for (int i = 0; i < 500; i++) IS(rest[i], pattern(500 + (size_t)i, 3));
    FAILS(recv(ends[1], &byte, 1, 0), ECONNRESET);
    close(ends[0]), close(ends[1]);
}

// A writer that waits for room, and whose bytes nobody will read: it hears of that before it sleeps.
static void refused_before_it_is_full(void (*shuts)(int fd)) {
    static char much[1000];
    pair_here(ends);
    shuts(ends[1]);
    long sent = 0;
    ssize_t n;
    while ((n = send(ends[0], much, sizeof much, MSG_NOSIGNAL)) > 0 && sent < A_LOT) sent += n;
    CHECK(n < 0 && errno == EPIPE);
    close(ends[0]), close(ends[1]);
}

// Only the receiving way: TCP's kernel still takes what comes.
static void receiving_only(void) {
    pair_here(ends);
    IS(shutdown(ends[1], SHUT_RD), 0);
    put_pattern(ends[0], 100, 5);
    get_pattern(ends[1], 100, 5);
    put_pattern(ends[1], 100, 6);
    get_pattern(ends[0], 100, 6);
    IS(recv(ends[1], &(char){0}, 1, MSG_DONTWAIT), 0);
    close(ends[0]), close(ends[1]);
}

// The other end only reads, and closes: nobody is reset.
static void closes_in_peace(void (*shuts)(int fd)) {
    pair_here(ends);
    put_pattern(ends[1], 50000, 7);
    shuts(ends[1]);
    get_pattern(ends[0], 50000, 7);
    IS(recv(ends[0], &(char){0}, 1, 0), 0);
    close(ends[0]);
    sleep_ms(5);
    IS(recv(ends[1], &(char){0}, 1, 0), 0);
    IS(recv(ends[1], &(char){0}, 1, 0), 0);
    close(ends[1]);
}

static void peer(int fd) {
    hear();
    both_at_once(fd);
    tell();
    hear();
    close(fd);
}

// In another process, with epoll.
static void elsewhere(void) {
    int fd = with_peer(peer), set = epoll_create1(0);
    IS(epoll_add(set, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET), 0);
    IS(epolled(set, fd, PATIENCE), EPOLLOUT);
    tell();
    hear();
    uint32_t seen = EPOLLIN | EPOLLOUT | EPOLLRDHUP;
    IS(epolled(set, fd, PATIENCE), seen);
    put_pattern(fd, 1000, 8);
    IS(epolled(set, fd, PATIENCE), seen | EPOLLERR | EPOLLHUP);
    FAILS(send(fd, "x", 1, MSG_NOSIGNAL), EPIPE);
    tell();
    close(fd), close(set);
    peer_ends();
}

int main(void) {
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        told_to_writer(ways[i]);
        reads_what_came_before(ways[i]);
        refused_before_it_is_full(ways[i]);
        closes_in_peace(ways[i]);
    }
    receiving_only();
    elsewhere();
    say("refused where nobody reads");
}
