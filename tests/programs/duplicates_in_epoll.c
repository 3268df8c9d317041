// A socket and its duplicate are two registrations; closing one number leaves the other, and its own as long as the socket lives.
#include "check.h"

static void peer(int fd) {
    for (int i = 0; i < 5; i++) hear(), put_pattern(fd, 10, i);
    hear();
}

// The registration of a closed number outlives it. The number becomes another socket's, which is registered too: neither changes the other.
static void number_of_another(void) {
    static char much[65536];
    int first[2], second[2], set = epoll_create1(0), n;
    struct epoll_event got[4], wants = {.events = EPOLLIN | EPOLLOUT, .data.u64 = 1}, writes = {.events = EPOLLOUT, .data.u64 = 2};
    pair_here(first), pair_here(second);
    int number = dup(first[0]);
    IS(epoll_ctl(set, EPOLL_CTL_ADD, number, &wants), 0);
    IS(epoll_wait(set, got, 4, PATIENCE), 1);
    close(number);
    IS(dup(second[0]), number);
    IS(epoll_ctl(set, EPOLL_CTL_ADD, number, &writes), 0);
    while (send(first[0], much, sizeof much, MSG_DONTWAIT) > 0) {}
    for (int i = 0; i < 5; i++) {
        bool seen = false;
        IS(polled(set, POLLIN, 5), POLLIN);
        n = epoll_wait(set, got, 4, PATIENCE);
        for (int k = 0; k < n; k++) seen |= got[k].data.u64 == 2 && got[k].events == EPOLLOUT;
        CHECK(seen);
    }
    // Nothing to tell, but that the kernel cannot be kept from telling: a time limit holds.
    IS(epoll_ctl(set, EPOLL_CTL_DEL, number, NULL), 0);
    IS(polled(set, POLLIN, 20), 0);
    close(set), close(number);
    for (int i = 0; i < 2; i++) close(first[i]), close(second[i]);
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
    number_of_another();
    say("a registration lives as long as the socket, and is its number's again");
}
