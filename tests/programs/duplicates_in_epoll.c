// A socket and its duplicate are two registrations; closing one number leaves the other, and its own as long as the socket lives.
#include "check.h"

static void peer(int fd) {
    for (int i = 0; i < 5; i++) hear(), put_pattern(fd, 10, i);
    hear();
}

int main(void) {
    int fd = with_peer(peer), twin = dup(fd), set = epoll_create1(0);
    struct epoll_event ev[4];
    IS(epoll_add(set, fd, EPOLLIN), 0);
    IS(epoll_add(set, twin, EPOLLIN), 0);
    tell();
    when_readable(fd);
    IS(epoll_wait(set, ev, 4, PATIENCE), 2);
    CHECK(ev[0].data.fd + ev[1].data.fd == fd + twin && ev[0].data.fd != ev[1].data.fd);
    get_pattern(twin, 10, 0);
    IS(epoll_wait(set, ev, 4, 0), 0);
    IS(epoll_ctl(set, EPOLL_CTL_DEL, twin, NULL), 0);
    tell();
    IS(epolled(set, fd, PATIENCE), EPOLLIN);
    get_pattern(fd, 10, 1);
    say("two registrations");
    IS(close(fd), 0);  // the registration under that number stays while the twin is open
    tell();
    IS(epolled(set, fd, PATIENCE), EPOLLIN);
    get_pattern(twin, 10, 2);
    FAILS(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL), EBADF);
    IS(dup2(twin, fd), fd);  // the number is the socket's again, and so is the registration
    struct epoll_event other = {.events = EPOLLIN, .data.fd = 1000};
    FAILS(epoll_add(set, fd, EPOLLIN), EEXIST);
    IS(epoll_ctl(set, EPOLL_CTL_MOD, fd, &other), 0);
    tell();
    IS(epoll_wait(set, ev, 4, PATIENCE), 1);
    IS(ev[0].data.fd, 1000);
    get_pattern(fd, 10, 3);
    IS(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL), 0);
    tell();
    when_readable(fd);
    IS(epoll_wait(set, ev, 4, 0), 0);
    get_pattern(fd, 10, 4);
    IS(epoll_add(set, fd, EPOLLIN), 0);
    IS(close(fd), 0);
    IS(close(twin), 0);
    IS(epoll_wait(set, ev, 4, 20), 0);
    tell();
    peer_ends();
    say("a registration lives as long as the socket, and is its number's again");
}
