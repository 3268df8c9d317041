// splice from a socket whose other end was kept waiting for room, has half-closed, or has said nothing; into a pipe that is
// full, or that nobody reads.
#include "check.h"

enum { MUCH = 200000 };

static void peer(int fd) {
    put_pattern(fd, MUCH, 1);
    hear();
    put_pattern(fd, 10000, 2);
    IS(shutdown(fd, SHUT_WR), 0);
    get_pattern(fd, 1000, 3);
}

static void carry(int fd, int p[2], int n, int salt) {
    uint8_t *text = malloc((size_t)n);
    for (int at = 0; at < n;) {
        ssize_t put = splice(fd, NULL, p[1], NULL, (size_t)(n - at), 0);
        CHECK(put > 0);
        for (ssize_t got = 0, some; got < put; got += some) {
            some = read(p[0], text + at + got, (size_t)(put - got));
            CHECK(some > 0);
        }
        at += (int)put;
    }
    same(text, 0, (size_t)n, salt);
    free(text);
}

int main(void) {
    int fd = with_peer(peer), p[2], full[2], broken[2];
    IS(pipe(p), 0);
    IS(pipe(full), 0);
    IS(pipe(broken), 0);
    IS(close(broken[0]), 0);
    nonblocking(full[1]);
    while (write(full[1], p, 1) == 1) {}
    sleep_ms(100);
    FAILS(splice(fd, NULL, full[1], NULL, 1000, 0), EAGAIN);
    signal(SIGPIPE, SIG_IGN);
    FAILS(splice(fd, NULL, broken[1], NULL, 1000, 0), EPIPE);
    off_t offset = 0;
    FAILS(splice(fd, &offset, p[1], NULL, 1000, 0), EINVAL);
    carry(fd, p, MUCH, 1);
    say("all of what waited");
    nonblocking(fd);
    FAILS(splice(fd, NULL, p[1], NULL, 1000, 0), EAGAIN);
    IS(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK), 0);
    tell();
    sleep_ms(50);
    carry(fd, p, 10000, 2);
    IS(splice(fd, NULL, p[1], NULL, 1000, 0), 0);
    say("end of file");
    uint8_t text[1000];
    fill(text, 0, sizeof text, 3);
    IS(write(p[1], text, sizeof text), (long)sizeof text);
    for (int at = 0; at < 1000;) {
        ssize_t n = splice(p[0], NULL, fd, NULL, (size_t)(1000 - at), 0);
        CHECK(n > 0);
        at += (int)n;
    }
    peer_ends();
    say("and the other way");
}
