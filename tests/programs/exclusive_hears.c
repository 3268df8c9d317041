// An exclusive registration (EPOLLEXCLUSIVE) of a connection that has no room: the end of the connection is told all the same.
#include "check.h"

int main(void) {
    struct sockaddr_in at;
    int listener = listen_on(&at);
    pid_t peer = fork();
    if (peer == 0) {
        close(listener);
        warm_up(connect_to(&at), true);
        pause();
    }
    int fd = accept_from(listener), set = epoll_create1(EPOLL_CLOEXEC);
    warm_up(fd, false);
    nonblocking(fd);
    IS(epoll_add(set, fd, EPOLLIN | EPOLLOUT | EPOLLEXCLUSIVE), 0);
    static char bytes[65536];
    for (int i = 0; i < 50; i++) {
        while (send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) > 0) {}
        epolled(set, fd, 5);
    }
    IS(epolled(set, fd, 100), 0);
    IS(kill(peer, SIGKILL), 0);
    IS(waitpid(peer, NULL, 0), peer);
    CHECK(epolled(set, fd, PATIENCE) & EPOLLIN);
    say("told");
}
