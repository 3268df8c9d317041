// splice out of a socket stops before an urgent byte, which is neither moved nor lost.
#include "check.h"

static void peer(int fd) {
    put_pattern(fd, 100, 1);
    IS(send(fd, "X", 1, MSG_OOB), 1);
    put_pattern(fd, 50, 2);
    tell();
    hear();
}

int main(void) {
    int fd = with_peer(peer), p[2], marked = 0;
    uint8_t text[100], urgent;
    IS(pipe(p), 0);
    hear();
    CHECK(polled(fd, POLLPRI, PATIENCE) & POLLPRI);
    for (ssize_t moved = 0; moved < 100;) {
        ssize_t n = splice(fd, NULL, p[1], NULL, 1000, 0);
        CHECK(n > 0);
        moved += n;
        CHECK(moved <= 100);
    }
    IS(read(p[0], text, 100), 100);
    same(text, 0, 100, 1);
    IS(ioctl(fd, SIOCATMARK, &marked), 0);
    CHECK(marked);
    IS(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    FAILS(splice(fd, NULL, p[1], NULL, 1000, 0), EAGAIN);
    IS(recv(fd, &urgent, 1, MSG_OOB), 1);
    IS(urgent, 'X');
    say("none of it is lost");
    get_pattern(fd, 50, 2);
    tell();
    IS(close(fd), 0);
    peer_ends();
}
