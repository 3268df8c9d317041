// Requests of io_uring that are none of a connection where they are made, or are made past
// liburing's functions, and yet the kernel works on a connection: a ring that was given one, and
// keeps it when its number is closed; requests that wait for others, whose number is a connection's
// by then; and a ring that liburing made, and the program submits to itself.
#include "../include/check.h"
#include <liburing.h>
#include <sys/syscall.h>

enum { SIZE = 3000, REGISTER_FILES = 2, GET_EVENTS = 1, REGISTERED_RING = 16 };

static struct io_uring ring;

static struct io_uring_sqe *request(void) {
    struct io_uring_sqe *made = io_uring_get_sqe(&ring);
    CHECK(made);
    return made;
}

static int completed(void) {
    struct io_uring_cqe *cqe;
    IS(io_uring_wait_cqe(&ring, &cqe), 0);
    int result = cqe->res;
    io_uring_cqe_seen(&ring, cqe);
    return result;
}

static void peer_of_kept(int fd) {
    hear();
    put_pattern(fd, SIZE, 1);
    get_pattern(fd, SIZE, 2);
}

// The connection is still open, as the ring has it.
static void kept(int fd, int how) {
    uint8_t bytes[SIZE];
    int none = -1;
    if (how == 0) IS(io_uring_register_files(&ring, &fd, 1), 0);
    if (how == 1) {
        IS(io_uring_register_files(&ring, &none, 1), 0);
        IS(io_uring_register_files_update(&ring, 0, &fd, 1), 1);
    }
    if (how == 2) IS(syscall(__NR_io_uring_register, ring.ring_fd, REGISTER_FILES, &fd, 1), 0);
    close(fd);
    tell();
    for (int at = 0, got; at < SIZE; at += got) {
        struct io_uring_sqe *made = request();
        io_uring_prep_recv(made, 0, bytes + at, (size_t)(SIZE - at), 0);
        made->flags |= IOSQE_FIXED_FILE;
        IS(io_uring_submit(&ring), 1);
        CHECK((got = completed()) > 0);
    }
    same(bytes, 0, SIZE, 1);
    fill(bytes, 0, SIZE, 2);
    struct io_uring_sqe *made = request();
    io_uring_prep_send(made, 0, bytes, SIZE, MSG_WAITALL);
    made->flags |= IOSQE_FIXED_FILE;
    IS(io_uring_submit(&ring), 1);
    IS(completed(), SIZE);
    say("the ring kept it");
}

static void peer_of_waiting(int fd) {
    for (int i = 0; i < 3; i++) get_pattern(fd, SIZE, i);
    put_pattern(fd, SIZE, 3);
}

// What is to be written waits for a byte of a pipe; the file's number is the connection's then.
static void waiting(int fd, bool link) {
    uint8_t bytes[SIZE];
    char byte;
    int pipes[2], file = open("/dev/null", O_WRONLY);
    CHECK(file >= 0);
    IS(pipe(pipes), 0);
    fill(bytes, 0, SIZE, 1);
    struct io_uring_sqe *made = request();
    io_uring_prep_read(made, pipes[0], &byte, 1, 0);
    if (link) made->flags |= IOSQE_IO_LINK;
    made = request();
    io_uring_prep_write(made, file, bytes, SIZE, 0);
    if (!link) made->flags |= IOSQE_IO_DRAIN;
    IS(io_uring_submit(&ring), 2);
    put_pattern(fd, SIZE, 0);
    IS(dup2(fd, file), file);
    IS(write(pipes[1], "", 1), 1);
    IS(completed() + completed(), SIZE + 1);
    put_pattern(fd, SIZE, 2);
    get_pattern(fd, SIZE, 3);
    say("in order");
}

static void peer_of_own(int fd) {
    hear();
    put_pattern(fd, SIZE, 1);
    put_pattern(fd, SIZE, 2);
    get_pattern(fd, SIZE, 3);
}

// By the number that the ring has in its own table, or by its descriptor.
static void own(int fd, bool registered) {
    uint8_t bytes[SIZE];
    if (registered) IS(io_uring_register_ring_fd(&ring), 1);
    tell();
    for (int at = 0, got; at < SIZE; at += got) {
        io_uring_prep_recv(request(), fd, bytes + at, (size_t)(SIZE - at), 0);
        unsigned tail = *ring.sq.ktail, mask = *ring.sq.kring_mask;
        ring.sq.array[tail & mask] = ring.sq.sqe_head++ & mask;
        __atomic_store_n(ring.sq.ktail, tail + 1, __ATOMIC_RELEASE);
        unsigned flags = GET_EVENTS | (registered ? REGISTERED_RING : 0);
        IS(syscall(__NR_io_uring_enter, registered ? ring.enter_ring_fd : ring.ring_fd, 1, 0, flags, NULL, 8), 1);
        CHECK((got = completed()) > 0);
    }
    same(bytes, 0, SIZE, 1);
    get_pattern(fd, SIZE, 2);
    put_pattern(fd, SIZE, 3);
    say("in order");
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "";
    bool keeps = !strncmp(way, "kept", 4), waits = !strcmp(way, "link") || !strcmp(way, "drain");
    IS(io_uring_queue_init(8, &ring, 0), 0);
    int fd = with_peer(keeps ? peer_of_kept : waits ? peer_of_waiting : peer_of_own);
    alarm(60);
    if (keeps) kept(fd, way[4] - '0');
    else if (waits) waiting(fd, way[0] == 'l');
    else own(fd, !strcmp(way, "registered"));
    peer_ends();
}
