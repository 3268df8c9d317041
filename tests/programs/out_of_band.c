// MSG_OOB: POLLPRI and SIGURG, the byte out of line or in line, the mark; the stream around it is whole.
#include "check.h"

static volatile sig_atomic_t urgent;
static void on_urgent(int sig) { (void)sig, urgent++; }

static void peer(int fd) {
    // From the first urgent byte on the connection stays on TCP: it is to have been elsewhere before.
    warm_up(fd, true);
    put_pattern(fd, 100, 1);
    IS(send(fd, "!", 1, MSG_OOB), 1);
    put_pattern(fd, 100, 2);
    hear();
    put_pattern(fd, 10, 3);
    IS(send(fd, "?", 1, MSG_OOB), 1);
    put_pattern(fd, 10, 4);
    hear();
    warm_up(fd, true);
}

int main(void) {
    char c = 0;
    int fd = with_peer(peer), mark = -1, one = 1;
    signal(SIGURG, on_urgent);
    warm_up(fd, false);
    IS(fcntl(fd, F_SETOWN, getpid()), 0);
    CHECK(polled(fd, POLLPRI, PATIENCE) == POLLPRI);
    IS(recv(fd, &c, 1, MSG_OOB), 1);
    IS(c, '!');
    get_pattern(fd, 100, 1);
    IS(ioctl(fd, SIOCATMARK, &mark), 0);
    IS(mark, 1);
    IS(recv(fd, &c, 1, MSG_PEEK), 1);
    IS((uint8_t)c, pattern(0, 2));
    IS(sockatmark(fd), 1);
    get_pattern(fd, 100, 2);
    IS(sockatmark(fd), 0);
    say("out of line");
    FAILS(recv(fd, &c, 1, MSG_OOB), EINVAL);
    IS(setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &one, sizeof one), 0);
    tell();
    CHECK(polled(fd, POLLPRI, PATIENCE) == POLLPRI);
    get_pattern(fd, 10, 3);
    IS(ioctl(fd, SIOCATMARK, &mark), 0);
    IS(mark, 1);
    IS(recv(fd, &c, 1, 0), 1);
    IS(c, '?');
    get_pattern(fd, 10, 4);
    CHECK(urgent >= 1);
    say("in line, with SIGURG");
    tell();
    warm_up(fd, false);
    peer_ends();
}
