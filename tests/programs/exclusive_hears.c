// An exclusive registration (EPOLLEXCLUSIVE) of a connection that has no room: the end of the connection is told all the same.
#include "check.h"

static void sleeps(int fd) { (void)fd, pause(); }

int main(void) {
    int fd = with_peer(sleeps), set = epoll_create1(EPOLL_CLOEXEC);
    nonblocking(fd);
    IS(epoll_add(set, fd, EPOLLIN | EPOLLOUT | EPOLLEXCLUSIVE), 0);
    static char bytes[65536];
    for (int i = 0; i < 50; i++) {
        while (send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) > 0) {}
        epolled(set, fd, 5);
    }
    IS(epolled(set, fd, 100), 0);
    IS(kill(other, SIGKILL), 0);
    CHECK(WIFSIGNALED(ended(other)));
    CHECK(epolled(set, fd, PATIENCE) & EPOLLIN);
    say("told");
}
