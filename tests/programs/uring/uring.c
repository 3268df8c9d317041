// A program that moves bytes, waits, accepts, connects, closes and changes its epoll sets by
// io_uring (liburing), beside ordinary calls on the same sockets. Its peers know nothing of that.
// With "late" as the first argument a connection has been used by ordinary calls before there is a
// ring, and bytes are under way in both directions. With "files" the ring is one of files alone
// while connections are used by ordinary calls; "turn" goes on as "late" then.
#include "../include/check.h"
#include <fcntl.h>
#include <liburing.h>
#include <stddef.h>

// What the library takes for granted of liburing (crates/shim/src/ops/uring.rs).
_Static_assert(offsetof(struct io_uring, sq.khead) == 0, "head");
_Static_assert(offsetof(struct io_uring, sq.kring_mask) == 16, "mask");
_Static_assert(offsetof(struct io_uring, sq.sqes) == 56, "requests");
_Static_assert(offsetof(struct io_uring, sq.sqe_tail) == 68, "made");
_Static_assert(offsetof(struct io_uring, ring_fd) == 196, "descriptor");
_Static_assert(sizeof(struct io_uring_sqe) == 64 && offsetof(struct io_uring_sqe, fd) == 4, "request");

static struct io_uring ring;

static void begin(void) { IS(io_uring_queue_init(16, &ring, 0), 0); }

static struct io_uring_sqe *entry(uint64_t data) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
    CHECK(sqe);
    sqe->user_data = data;
    return sqe;
}

// Before the entry's own data is set, liburing 2.3 overwrites all of it.
#define SUBMIT(data, prepare, ...)                        \
    do {                                                  \
        struct io_uring_sqe *sqe_ = entry(0);             \
        prepare(sqe_, __VA_ARGS__);                       \
        sqe_->user_data = (data);                         \
    } while (0)

// The next completion, which must be of `data`.
static int completed(uint64_t data) {
    struct __kernel_timespec limit = {.tv_sec = PATIENCE / 1000};
    struct io_uring_cqe *cqe;
    IS(io_uring_wait_cqe_timeout(&ring, &cqe, &limit), 0);
    IS(cqe->user_data, data);
    int result = cqe->res;
    io_uring_cqe_seen(&ring, cqe);
    return result;
}

static void put(int fd, size_t n, int salt) {
    uint8_t part[20000];
    for (size_t at = 0, sent; at < n; at += sent) {
        size_t len = n - at < sizeof part ? n - at : sizeof part;
        fill(part, at, len, salt);
        SUBMIT(1, io_uring_prep_send, fd, part, len, MSG_NOSIGNAL);
        IS(io_uring_submit(&ring), 1);
        int result = completed(1);
        CHECK(result > 0);
        sent = (size_t)result;
    }
}

static void get(int fd, size_t n, int salt) {
    uint8_t part[20000];
    for (size_t at = 0, got; at < n; at += got) {
        SUBMIT(2, io_uring_prep_recv, fd, part, n - at < sizeof part ? n - at : sizeof part, 0);
        IS(io_uring_submit(&ring), 1);
        int result = completed(2);
        CHECK(result > 0);
        got = (size_t)result;
        same(part, at, got, salt);
    }
}

enum { SIZES = 5, LATE = 30000 };
static const size_t sizes[SIZES] = {1, 100, 5000, 100000, 3000000};

// What a peer does for `exchange`.
static void answer(int fd) {
    for (int way = 0; way < 2; way++) {
        for (int i = 0; i < SIZES; i++) get_pattern(fd, sizes[i], i), put_pattern(fd, sizes[i], i + 1);
    }
}

// By the ring, and by ordinary calls.
static void exchange(int fd) {
    for (int i = 0; i < SIZES; i++) put(fd, sizes[i], i), get(fd, sizes[i], i + 1);
    for (int i = 0; i < SIZES; i++) put_pattern(fd, sizes[i], i), get_pattern(fd, sizes[i], i + 1);
}

static void peer_of_late(int fd) {
    put_pattern(fd, LATE, 3);
    tell();
    hear();
    get_pattern(fd, LATE, 4);
    answer(fd);
}

// Bytes lie unread in both directions when the ring is set up.
static void late(void) {
    int fd = with_peer(peer_of_late);
    hear();
    put_pattern(fd, LATE, 4);
    if (ring.ring_fd <= 0) begin();
    get(fd, LATE, 3);
    tell();
    exchange(fd);
    peer_ends();
    close(fd);
    io_uring_queue_exit(&ring);
}

enum { TURNS = 40 };

static void peer_of_files(int fd) {
    for (int i = 0; i < TURNS; i++) get_pattern(fd, 50000, i), put_pattern(fd, 50000, i + 1);
}

// Writes a piece of a file, makes sure of it and reads it, in one submission and in several.
static void use_file(int file, int round) {
    static char out[3000], in[3000];
    memset(out, round, sizeof out);
    off_t at = round * (off_t)sizeof out;
    struct iovec piece = {out, sizeof out};
    SUBMIT(1, io_uring_prep_writev, file, &piece, 1, at);
    IS(io_uring_submit(&ring), 1);
    IS(completed(1), (int)sizeof out);
    SUBMIT(2, io_uring_prep_fsync, file, 0);
    SUBMIT(3, io_uring_prep_read, file, in, sizeof in, at);
    IS(io_uring_submit_and_wait(&ring, 2), 2);
    int results = 0;
    for (int i = 0; i < 2; i++) {
        struct io_uring_cqe *cqe;
        IS(io_uring_wait_cqe(&ring, &cqe), 0);
        results += cqe->res;
        io_uring_cqe_seen(&ring, cqe);
    }
    IS(results, (int)sizeof in);
    IS(memcmp(in, out, sizeof in), 0);
}

// A ring that only knows a file: what connections carry stays as it is.
static void files(void) {
    int file = open(".", O_TMPFILE | O_RDWR, 0600);
    if (file < 0) file = fileno(tmpfile());
    int fd = with_peer(peer_of_files);
    begin();
    for (int i = 0; i < TURNS; i++) {
        use_file(file, i);
        put_pattern(fd, 50000, i);
        use_file(file, TURNS + i);
        get_pattern(fd, 50000, i + 1);
    }
    close(file);
    peer_ends();
    close(fd);
}

static void peer_of_sets(int fd) {
    hear();
    put_pattern(fd, 100, 1);
    get_pattern(fd, 100, 2);
}

// Connections that are made after the ring, to peers that have none: they were forked before.
static struct sockaddr_in at;

static void peer_of(void (*does)(int fd)) {
    int sides[2];
    IS(socketpair(AF_UNIX, SOCK_STREAM, 0, sides), 0);
    other = fork();
    CHECK(other >= 0);
    if (other == 0) {
        close(sides[0]);
        side = sides[1];
        hear();
        int fd = connect_to(&at);
        warm_up(fd, true);
        does(fd);
        while (read(side, &(char){0}, 1) > 0) {}
        exit(0);
    }
    close(sides[1]);
    side = sides[0];
}

static void peer_of_all(int fd) {
    answer(fd);
    hear();
    put_pattern(fd, 100, 5);
    peer_of_sets(fd);
}

static uint32_t events_of(struct epoll_event *ev, int n, uint64_t data) {
    uint32_t events = 0;
    for (int i = 0; i < n; i++) events |= ev[i].data.u64 == data ? ev[i].events : 0;
    return events;
}

static void change(int set, int operation, int fd, struct epoll_event *ev, bool by_ring) {
    if (by_ring) SUBMIT(3, io_uring_prep_epoll_ctl, set, fd, operation, ev);
    else IS(epoll_ctl(set, operation, fd, ev), 0);
}

static void both_done(bool by_ring) {
    if (!by_ring) return;
    IS(io_uring_submit(&ring), 2);
    IS(completed(3), 0);
    IS(completed(3), 0);
}

// Registrations that only the ring's requests have made, two with one system call.
static void sets(int fd) {
    struct io_uring_probe *probe = io_uring_get_probe_ring(&ring);
    bool by_ring = probe && io_uring_opcode_supported(probe, IORING_OP_EPOLL_CTL);
    io_uring_free_probe(probe);
    int set = epoll_create1(0), here[2];
    CHECK(set >= 0);
    pair_here(here);
    struct epoll_event first = {.events = EPOLLIN, .data.u64 = 7}, second = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.u64 = 8}, ev[4];
    change(set, EPOLL_CTL_ADD, fd, &first, by_ring);
    change(set, EPOLL_CTL_ADD, here[0], &second, by_ring);
    both_done(by_ring);
    IS(epoll_wait(set, ev, 4, PATIENCE), 1);
    CHECK(ev[0].data.u64 == 8 && ev[0].events == EPOLLOUT);
    IS(epoll_wait(set, ev, 4, 30), 0);
    tell();
    IS(epoll_wait(set, ev, 4, PATIENCE), 1);
    IS(events_of(ev, 1, 7), EPOLLIN);
    put_pattern(here[1], 10, 0);
    // Both in one report, as soon as the second is there.
    when_readable(here[0]);
    int n = epoll_wait(set, ev, 4, PATIENCE);
    IS(events_of(ev, n, 7), EPOLLIN);
    CHECK(events_of(ev, n, 8) & EPOLLIN);
    get(fd, 100, 1);
    get_pattern(here[0], 10, 0);
    second.events = EPOLLIN;
    change(set, EPOLL_CTL_DEL, fd, NULL, by_ring);
    change(set, EPOLL_CTL_MOD, here[0], &second, by_ring);
    both_done(by_ring);
    IS(epoll_wait(set, ev, 4, 30), 0);
    put(here[1], 10, 0);
    IS(epoll_wait(set, ev, 4, PATIENCE), 1);
    IS(events_of(ev, 1, 8), EPOLLIN);
    put_pattern(fd, 100, 2);
    close(here[0]), close(here[1]), close(set);
}

// accept, connect and close by the ring: the numbers are used again at once, by ordinary calls too.
static void life(int listener) {
    for (int round = 0; round < 20; round++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(fd >= 0);
        SUBMIT(4, io_uring_prep_accept, listener, NULL, NULL, 0);
        SUBMIT(5, io_uring_prep_connect, fd, (struct sockaddr *)&at, sizeof at);
        IS(io_uring_submit(&ring), 2);
        int taken = -1;
        for (int i = 0; i < 2; i++) {
            struct io_uring_cqe *cqe;
            IS(io_uring_wait_cqe(&ring, &cqe), 0);
            if (cqe->user_data == 4) taken = cqe->res;
            else IS(cqe->res, 0);
            io_uring_cqe_seen(&ring, cqe);
        }
        CHECK(taken >= 0);
        put_pattern(fd, 1000, round), get_pattern(taken, 1000, round);
        put(taken, 1000, round), get(fd, 1000, round);
        put_pattern(taken, 1000, round), get(fd, 1000, round);
        SUBMIT(6, io_uring_prep_close, round % 2 ? fd : taken);
        IS(io_uring_submit(&ring), 1);
        IS(completed(6), 0);
        IS(recv(round % 2 ? taken : fd, (char[1]){0}, 1, 0), 0);
        close(round % 2 ? taken : fd);
    }
}

int main(int argc, char **argv) {
    const char *first = argc > 1 ? argv[1] : "";
    if (!strcmp(first, "files") || !strcmp(first, "turn")) files();
    if (!strcmp(first, "files")) return 0;
    if (!strcmp(first, "late") || !strcmp(first, "turn")) late();
    int listener = listen_on(&at);
    peer_of(peer_of_all);
    begin();
    tell();
    int fd = accept_from(listener);
    warm_up(fd, false);
    exchange(fd);
    say("bytes");
    SUBMIT(9, io_uring_prep_poll_add, fd, POLLIN);
    IS(io_uring_submit(&ring), 1);
    sleep_ms(50);
    struct io_uring_cqe *cqe;
    IS(io_uring_peek_cqe(&ring, &cqe), -EAGAIN);
    tell();
    CHECK(completed(9) & POLLIN);
    get(fd, 100, 5);
    say("readiness");
    sets(fd);
    say("epoll_ctl");
    peer_ends();
    IS(read(fd, (char[1]){0}, 1), 0);
    close(fd);
    life(listener);
    say("accept, connect and close");
}
