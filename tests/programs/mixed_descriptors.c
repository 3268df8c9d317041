// poll, select and epoll over a socket among pipes, eventfds, files and descriptors that are not open.
#include "check.h"

static void peer(int fd) {
    for (int i = 0; i < 5; i++) hear(), put_pattern(fd, 10, i);
}

int main(void) {
    int fd = with_peer(peer), p[2], ev = eventfd(0, 0), file = memfd_create("file", 0), udp = socket(AF_INET, SOCK_DGRAM, 0);
    IS(pipe(p), 0);
    struct pollfd all[7] = {{fd, POLLIN, 0}, {p[0], POLLIN, 0}, {ev, POLLIN, 0}, {file, POLLIN, 0}, {udp, POLLIN, 0}, {4000, POLLIN, 0}, {-5, POLLIN, 0}};
    IS(poll(all, 7, 0), 2);
    CHECK(all[3].revents == POLLIN && all[5].revents == POLLNVAL && !all[0].revents);
    all[3].fd = all[5].fd = -1;
    IS(poll(all, 7, 50), 0);
    tell();
    IS(poll(all, 7, PATIENCE), 1);
    IS(all[0].revents, POLLIN);
    CHECK(write(p[1], "x", 1) == 1);
    IS(poll(all, 7, PATIENCE), 2);
    CHECK(all[0].revents == POLLIN && all[1].revents == POLLIN);
    get_pattern(fd, 10, 0);
    IS(poll(all, 7, PATIENCE), 1);
    CHECK(!all[0].revents && all[1].revents == POLLIN);
    CHECK(read(p[0], (char[1]){0}, 1) == 1);
    say("poll");
    fd_set r, w;
    FD_ZERO(&r);
    FD_ZERO(&w);
    FD_SET(fd, &r);
    FD_SET(p[0], &r);
    FD_SET(ev, &r);
    FD_SET(p[1], &w);
    FD_SET(fd, &w);
    tell();
    when_readable(fd);
    IS(select(100, &r, &w, NULL, NULL), 3);
    CHECK(FD_ISSET(fd, &r) && !FD_ISSET(p[0], &r) && !FD_ISSET(ev, &r) && FD_ISSET(p[1], &w) && FD_ISSET(fd, &w));
    get_pattern(fd, 10, 1);
    FD_SET(63, &r);
    FAILS(select(64, &r, NULL, NULL, NULL), EBADF);
    say("select");
    // A duplicate in the same call: both numbers are reported.
    int twin = dup(fd);
    struct pollfd two[3] = {{fd, POLLIN, 0}, {twin, POLLIN, 0}, {fd, POLLIN | POLLOUT, 0}};
    tell();
    when_readable(fd);
    IS(poll(two, 3, PATIENCE), 3);
    CHECK(two[0].revents == POLLIN && two[1].revents == POLLIN && two[2].revents == (POLLIN | POLLOUT));
    get_pattern(twin, 10, 2);
    say("twice in one call");
    int set = epoll_create1(0);
    struct epoll_event got[4];
    IS(epoll_add(set, fd, EPOLLIN), 0);
    IS(epoll_add(set, p[0], EPOLLIN), 0);
    IS(epoll_add(set, ev, EPOLLIN), 0);
    FAILS(epoll_add(set, file, EPOLLIN), EPERM);
    FAILS(epoll_add(set, fd, EPOLLIN), EEXIST);
    FAILS(epoll_mod(set, twin, EPOLLIN), ENOENT);
    tell();
    when_readable(fd);
    CHECK(write(ev, &(uint64_t){1}, 8) == 8);
    int n = epoll_wait(set, got, 4, PATIENCE);
    IS(n, 2);
    CHECK((got[0].data.fd == fd && got[1].data.fd == ev) || (got[0].data.fd == ev && got[1].data.fd == fd));
    get_pattern(fd, 10, 3);
    say("epoll");
    // A socket with bytes to read, always, keeps nobody else from being told of.
    tell();
    when_readable(fd);
    bool told = false;
    for (int waits = 0; waits < 1000000 && !told; waits++) {
        IS(epoll_wait(set, got, 1, PATIENCE), 1);
        told = got[0].data.fd == ev;
    }
    CHECK(told);
    say("nobody starves");
    get_pattern(fd, 10, 4);
    peer_ends();
}
