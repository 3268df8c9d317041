// EPOLLONESHOT: one event, then silence until MOD; what waits is reported as soon as it is armed again.
#include "check.h"

static void peer(int fd) {
    for (int i = 0; i < 200; i++) hear(), put_pattern(fd, 10, i);
}

// What is ready is told in one event: the other half would come to nobody any more. With a single place for events, too.
static void shot_with_everything(void) {
    int ends[2], set = epoll_create1(0);
    pair_here(ends);
    IS(epoll_add(set, ends[0], EPOLLIN), 0);
    // Somebody has slept on it.
    IS(epolled(set, ends[0], 5), 0);
    for (int i = 0; i < 100; i++) {
        struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLONESHOT | (i % 2 ? EPOLLET : 0u), .data.fd = ends[0]};
        put_all(ends[1], "x", 1);
        IS(epoll_ctl(set, EPOLL_CTL_MOD, ends[0], &ev), 0);
        usleep(100);
        IS(epoll_wait(set, &ev, 1, PATIENCE), 1);
        IS(ev.events, EPOLLIN | EPOLLOUT);
        for (int k = 0; k < i % 3; k++) IS(epoll_wait(set, &ev, 1, 0), 0);
        get_all(ends[0], &(char){0}, 1);
    }
}

int main(void) {
    int fd = with_peer(peer), set = epoll_create1(0);
    IS(epoll_add(set, fd, EPOLLIN | EPOLLONESHOT), 0);
    for (int i = 0; i < 200; i++) {
        tell();
        IS(epolled(set, fd, PATIENCE), EPOLLIN);
        IS(epolled(set, fd, i % 50 == 0 ? 20 : 0), 0);
        if (i % 2) {  // armed while data is unread
            IS(epoll_mod(set, fd, EPOLLIN | EPOLLONESHOT), 0);
            IS(epolled(set, fd, PATIENCE), EPOLLIN);
        }
        get_pattern(fd, 10, i);
        IS(epoll_mod(set, fd, EPOLLIN | EPOLLONESHOT | (i % 3 ? EPOLLET : 0u)), 0);
        IS(epolled(set, fd, 0), 0);
    }
    IS(epoll_mod(set, fd, EPOLLIN | EPOLLOUT | EPOLLONESHOT), 0);
    CHECK(epolled(set, fd, PATIENCE) & EPOLLOUT);
    IS(epolled(set, fd, 0), 0);
    peer_ends();
    shot_with_everything();
    say("one event per arming");
}
