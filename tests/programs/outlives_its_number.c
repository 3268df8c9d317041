// A connection is closed here, and a child has it: the set goes on telling of it, with its own data, as epoll(7) says.
#include "check.h"

int main(void) {
    int set = epoll_create1(0), kept[2], closed[2], gone[2];
    struct epoll_event event = {.events = EPOLLRDHUP, .data.u64 = 7}, got[2];
    pair_here(kept);
    pair_here(closed);
    IS(epoll_ctl(set, EPOLL_CTL_ADD, kept[0], &event), 0);
    event.events = EPOLLIN | EPOLLOUT;
    IS(epoll_ctl(set, EPOLL_CTL_ADD, closed[0], &event), 0);
    IS(pipe(gone), 0);
    pid_t child = fork();
    if (child == 0) {
        close(gone[1]);
        CHECK(read(gone[0], &(char){0}, 1) == 0);
        _exit(0);
    }
    IS(close(closed[0]), 0);
    IS(epoll_wait(set, got, 2, PATIENCE), 1);
    CHECK(got[0].data.u64 == 7 && got[0].events == EPOLLOUT);
    IS(shutdown(closed[1], SHUT_WR), 0);
    sleep_ms(5);
    IS(epoll_wait(set, got, 2, PATIENCE), 1);
    CHECK(got[0].data.u64 == 7 && got[0].events == (EPOLLIN | EPOLLOUT));
    // The number is another's, and told of by itself.
    int fresh[2];
    pair_here(fresh);
    event.events = EPOLLOUT;
    IS(epoll_ctl(set, EPOLL_CTL_ADD, fresh[0], &event), 0);
    IS(epoll_wait(set, got, 2, PATIENCE), 2);
    close(gone[1]);
    ended(child);
    IS(epoll_wait(set, got, 2, PATIENCE), 1);
    CHECK(got[0].data.u64 == 7 && got[0].events == EPOLLOUT);
    say("told as long as anybody has it");
}
