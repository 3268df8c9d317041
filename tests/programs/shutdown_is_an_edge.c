// A shutdown is an edge of whatever there is to report, told of before or not: of this end's own directions, and of the other end's.
#include "check.h"

static void of_its_own(int how, uint32_t expected) {
    int set = epoll_create1(0), ends[2];
    pair_here(ends);
    IS(epoll_add(set, ends[0], EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET), 0);
    put_pattern(ends[1], 10, 1);
    while (!(epolled(set, ends[0], PATIENCE) & EPOLLIN)) {}
    while (epolled(set, ends[0], 20)) {}
    IS(shutdown(ends[0], how), 0);
    IS(epolled(set, ends[0], PATIENCE), expected);
    close(ends[0]), close(ends[1]), close(set);
}

// Both directions are shut here: what the other end says then changes no event.
static void of_the_other(void) {
    int set = epoll_create1(0), ends[2];
    pair_here(ends);
    IS(epoll_add(set, ends[0], EPOLLIN | EPOLLOUT | EPOLLET), 0);
    IS(shutdown(ends[0], SHUT_RDWR), 0);
    while (epolled(set, ends[0], 100)) {}
    close(ends[1]);
    IS(epolled(set, ends[0], PATIENCE), EPOLLIN | EPOLLOUT | EPOLLHUP);
    close(ends[0]), close(set);
}

int main(void) {
    of_its_own(SHUT_WR, EPOLLIN | EPOLLOUT);
    of_its_own(SHUT_RD, EPOLLIN | EPOLLOUT | EPOLLRDHUP);
    of_its_own(SHUT_RDWR, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP);
    of_the_other();
    say("each was told");
}
