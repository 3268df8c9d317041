// Edge-triggered epoll reports an arrival once, whether it is read or not; each later arrival again; MOD as if new.
#include "check.h"

static void peer(int fd) {
    for (int i = 0; i < 50; i++) hear(), put_pattern(fd, 10, i);
    hear();
}

int main(void) {
    int fd = with_peer(peer), set = epoll_create1(0);
    IS(epoll_add(set, fd, EPOLLIN | EPOLLET), 0);
    IS(epolled(set, fd, 0), 0);
    for (int i = 0; i < 50; i++) {
        tell();
        IS(epolled(set, fd, PATIENCE), EPOLLIN);
        IS(epolled(set, fd, i % 10 == 0 ? 20 : 0), 0);
        IS(polled(fd, POLLIN, 0), POLLIN);
    }
    IS(epoll_mod(set, fd, EPOLLIN | EPOLLET), 0);
    IS(epolled(set, fd, PATIENCE), EPOLLIN);
    IS(epolled(set, fd, 0), 0);
    IS(epoll_mod(set, fd, EPOLLIN), 0);
    for (int i = 0; i < 3; i++) IS(epolled(set, fd, 0), EPOLLIN);
    for (int i = 0; i < 50; i++) get_pattern(fd, 10, i);
    IS(epolled(set, fd, 0), 0);
    tell();
    peer_ends();
    say("50 arrivals, 50 edges");
}
