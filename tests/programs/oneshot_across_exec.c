// EPOLLONESHOT in a set that a fork child has too: what the parent arms stays armed when the child, which knows of the shot alone, executes a program.
#include "check.h"

int main(void) {
    for (int tagged = 0; tagged < 2; tagged++) {
        int ends[2], others[2], go[2], set = epoll_create1(0);
        pair_here(ends), pair_here(others);
        IS(pipe2(go, O_CLOEXEC), 0);
        struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, .data.u64 = 7}, got;
        // Two with the same data: not both have it in the kernel.
        if (tagged) IS(epoll_ctl(set, EPOLL_CTL_ADD, others[0], &event), 0);
        IS(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event), 0);
        put_pattern(ends[1], 10, 1);
        IS(epoll_wait(set, &got, 1, PATIENCE), 1);
        get_pattern(ends[0], 10, 1);
        pid_t child = fork();
        if (child == 0) {
            close(go[1]);
            IS(read(go[0], &(char){0}, 1), 0);
            execlp("true", "true", NULL);
            _exit(9);
        }
        IS(epoll_ctl(set, EPOLL_CTL_MOD, ends[0], &event), 0);
        IS(epoll_wait(set, &got, 1, 5), 0);
        close(go[0]), close(go[1]);
        IS(ended(child), 0);
        IS(shutdown(ends[1], SHUT_WR), 0);
        IS(epoll_wait(set, &got, 1, PATIENCE), 1);
        IS(got.events, EPOLLIN | EPOLLRDHUP);
        IS(epoll_wait(set, &got, 1, 20), 0);
        for (int i = 0; i < 2; i++) close(ends[i]), close(others[i]);
        close(set);
    }
    say("armed across an exec");
}
