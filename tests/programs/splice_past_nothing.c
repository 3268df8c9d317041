// splice into a socket that does not block, out of a pipe that has a buffer without a byte in it, as a write that faults leaves
// one behind on older kernels: there is nothing to splice.
#include "check.h"

static void peer(int fd) {
    get_pattern(fd, 1000, 1);
    hear();
}

static void nothing_left_in(int p[2]) {
    void *volatile nowhere = (void *)8;
    FAILS(write(p[1], nowhere, 100), EFAULT);
}

static void spliced(int fd, int flags) {
    int p[2];
    IS(pipe2(p, flags), 0);
    nothing_left_in(p);
    FAILS(splice(p[0], NULL, fd, NULL, 1000, SPLICE_F_NONBLOCK), EAGAIN);
    nothing_left_in(p);
    uint8_t text[500];
    fill(text, 0, sizeof text, 1);
    IS(write(p[1], text, sizeof text), (long)sizeof text);
    for (size_t at = 0; at < sizeof text;) {
        ssize_t n = splice(p[0], NULL, fd, NULL, 100, SPLICE_F_NONBLOCK);
        CHECK(n > 0);
        at += (size_t)n;
    }
    nothing_left_in(p);
    IS(close(p[1]), 0);
    IS(splice(p[0], NULL, fd, NULL, 1000, SPLICE_F_NONBLOCK), 0);
    IS(close(p[0]), 0);
}

int main(void) {
    for (int blocks = 0; blocks < 2; blocks++) {
        int fd = with_peer(peer);
        nonblocking(fd);
        spliced(fd, blocks ? 0 : O_NONBLOCK);
        uint8_t text[500];
        fill(text, 500, sizeof text, 1);
        put_all(fd, text, sizeof text);
        tell();
        say("nothing is spliced, and then what there is");
        IS(close(fd), 0);
        peer_ends();
    }
}
