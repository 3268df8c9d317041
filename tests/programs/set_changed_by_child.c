// A set that two processes have: what the child changes in it holds in the parent.
#include "check.h"

enum { BLOCK = 1 << 20 };

static int set, fd;

static void change(uint32_t events) {
    struct epoll_event event = {.events = events, .data.u64 = 0x1234567890};
    IS(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event), 0);
}

// What the set reports within `ms`; 0: nothing.
static uint32_t reported(int ms) {
    struct epoll_event event = {0};
    if (epoll_wait(set, &event, 1, ms) != 1) return 0;
    IS(event.data.u64, 0x1234567890);
    return event.events;
}

static void answers(int server) {
    char byte;
    IS(read(server, &byte, 1), 1);
    put_all(server, "b", 1);
    IS(read(server, &byte, 1), 1);
    put_all(server, "d", 1);
    // Now it is to be filled.
    static char bytes[BLOCK];
    sleep_ms(400);
    while (read(server, bytes, BLOCK) > 0) {}
}

int main(void) {
    fd = with_peer(answers);
    set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.u64 = 0x1234567890};
    IS(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
    IS(reported(PATIENCE), EPOLLOUT);
    pid_t child = fork();
    if (child == 0) {
        change(EPOLLIN);
        IS(reported(10), 0);
        exit(0);
    }
    IS(ended(child), 0);
    for (int i = 0; i < 5; i++) IS(reported(i), 0);
    child = fork();
    if (child == 0) {
        change(EPOLLIN | EPOLLOUT);
        exit(0);
    }
    IS(ended(child), 0);
    IS(reported(PATIENCE), EPOLLOUT);
    change(EPOLLIN);
    put_all(fd, "a", 1);
    IS(reported(PATIENCE), EPOLLIN);
    char byte;
    IS(read(fd, &byte, 1), 1);
    // Nothing at all, and what TCP never reports.
    child = fork();
    if (child == 0) {
        change(0);
        exit(0);
    }
    IS(ended(child), 0);
    IS(reported(0), 0);
    child = fork();
    if (child == 0) {
        change(EPOLLIN | EPOLLRDBAND | EPOLLWRBAND | EPOLLMSG);
        exit(0);
    }
    IS(ended(child), 0);
    IS(reported(5), 0);
    // One sleeps, and the other asks for what comes then.
    change(0);
    child = fork();
    if (child == 0) {
        sleep_ms(50);
        change(EPOLLIN);
        sleep_ms(50);
        put_all(fd, "c", 1);
        sleep_ms(100);
        exit(0);
    }
    IS(reported(PATIENCE), EPOLLIN);
    IS(read(fd, &byte, 1), 1);
    IS(ended(child), 0);
    // The child finds no more room, and ends; the parent is told when there is some.
    change(EPOLLIN | EPOLLOUT);
    child = fork();
    if (child == 0) {
        static char bytes[BLOCK];
        while (send(fd, bytes, BLOCK, MSG_DONTWAIT) > 0) {}
        CHECK(errno == EAGAIN);
        IS(reported(0), 0);
        exit(0);
    }
    IS(ended(child), 0);
    IS(reported(PATIENCE), EPOLLOUT);
    // Removed by the child.
    child = fork();
    if (child == 0) {
        IS(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL), 0);
        exit(0);
    }
    IS(ended(child), 0);
    IS(reported(5), 0);
    FAILS(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL), ENOENT);
    IS(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
    IS(reported(PATIENCE), EPOLLOUT);
    close(fd);
    peer_ends();
    say("as the child left it");
}
