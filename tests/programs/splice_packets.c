// splice, half a packet at a time, out of a pipe of packets that another thread fills meanwhile, into a socket that does not
// block: the rest of each packet stays for the next call.
#include "check.h"
#include <stdatomic.h>

enum { PACKETS = 3000, PACKET = 200, PIECE = 100 };

static int p[2];
static atomic_int written;

static void peer(int fd) {
    for (int i = 0; i < PACKETS; i++) get_pattern(fd, PACKET, i);
    put_pattern(fd, 1, 1);
}

static void *writer(void *none) {
    uint8_t text[PACKET];
    for (int i = 0; i < PACKETS; i++) {
        fill(text, 0, PACKET, i);
        // The reader is to find the pipe empty now and then.
        for (int turns = i % 7 * 5; turns > 0; turns--) sched_yield();
        while (write(p[1], text, PACKET) != PACKET) CHECK(errno == EAGAIN);
    }
    atomic_store(&written, 1);
    return none;
}

int main(void) {
    int fd = with_peer(peer);
    long sent = 0;
    pthread_t thread;
    IS(pipe2(p, O_DIRECT | O_NONBLOCK), 0);
    nonblocking(fd);
    IS(pthread_create(&thread, NULL, writer, NULL), 0);
    while (sent < (long)PACKETS * PACKET) {
        int over = atomic_load(&written);
        ssize_t put = splice(p[0], NULL, fd, NULL, PIECE, SPLICE_F_NONBLOCK);
        CHECK(put > 0 || errno == EAGAIN);
        if (put > 0) sent += put;
        struct pollfd in = {.fd = p[0], .events = POLLIN};
        if (put < 0 && over && poll(&in, 1, 0) == 0) break;
    }
    joined(thread);
    IS(sent, (long)PACKETS * PACKET);
    say("nothing of %d packets is lost", PACKETS);
    when_readable(fd);
    get_pattern(fd, 1, 1);
    say("all came");
    peer_ends();
}
