// The other end resets the connection: the next splice into it says ECONNRESET, and no SIGPIPE comes with it, whether epoll has
// told of the reset before or not, and whether the socket blocks or not. What splice is asked for that it does not know is
// refused.
#include "check.h"

static void peer(int fd) {
    struct linger at_once = {1, 0};
    IS(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    hear();
    IS(close(fd), 0);
    tell();
}

static void after_reset(bool looks, bool blocks) {
    int fd = with_peer(peer), p[2], set = epoll_create1(0);
    signal(SIGPIPE, SIG_DFL);
    if (!blocks) nonblocking(fd);
    IS(pipe2(p, O_NONBLOCK), 0);
    IS(epoll_add(set, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET), 0);
    epolled(set, fd, 0);
    IS(write(p[1], "0123456789", 10), 10);
    FAILS(splice(p[0], NULL, fd, NULL, 1, 0xff0), EINVAL);
    IS(splice(p[0], NULL, fd, NULL, 1, SPLICE_F_NONBLOCK), 1);
    tell();
    hear();
    CHECK(polled(fd, 0, PATIENCE) == (POLLERR | POLLHUP));
    if (looks) say("told %x", epolled(set, fd, PATIENCE));
    FAILS(splice(p[0], NULL, fd, NULL, 1, SPLICE_F_NONBLOCK), ECONNRESET);
    say("reset");
    signal(SIGPIPE, SIG_IGN);
    FAILS(splice(p[0], NULL, fd, NULL, 1, SPLICE_F_NONBLOCK), EPIPE);
    IS(close(fd), 0);
    IS(close(set), 0);
    IS(close(p[0]), 0);
    IS(close(p[1]), 0);
    peer_ends();
}

int main(void) {
    after_reset(false, false);
    after_reset(true, false);
    after_reset(false, true);
    after_reset(true, true);
    say("end");
}
