// Registrations that are taken away, put back and changed between two waits, as event loops do for every step: whoever looks at the set next,
// from wherever, sees what they came to.
#include "check.h"

static int set, ends[2], others[2];

static void add(int to, int fd, uint32_t events) { IS(epoll_add(to, fd, events), 0); }
static void drop(int from, int fd) { IS(epoll_ctl(from, EPOLL_CTL_DEL, fd, NULL), 0); }

static void takes(int fd) {
    char byte;
    IS(read(fd, &byte, 1), 1);
}

static void errors_are_the_kernels(void) {
    for (int i = 0; i < 3; i++) {
        add(set, ends[0], EPOLLIN);
        FAILS(epoll_add(set, ends[0], EPOLLIN), EEXIST);
        IS(epoll_mod(set, ends[0], EPOLLOUT), 0);
        FAILS(epoll_add(set, ends[0], EPOLLIN), EEXIST);
        drop(set, ends[0]);
        FAILS(epoll_ctl(set, EPOLL_CTL_DEL, ends[0], NULL), ENOENT);
        add(set, ends[0], EPOLLOUT);
        drop(set, ends[0]);
        FAILS(epoll_mod(set, ends[0], EPOLLIN), ENOENT);
        FAILS(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], NULL), EFAULT);
        FAILS(epoll_ctl(set, 77, ends[0], &(struct epoll_event){0}), EINVAL);
    }
    IS(epolled(set, ends[0], 0), 0);
}

static void steps_of_an_event_loop(void) {
    add(set, ends[0], EPOLLOUT);
    for (int i = 0; i < 500; i++) {
        IS(epolled(set, ends[0], PATIENCE), EPOLLOUT);
        put_all(ends[0], "q", 1);
        drop(set, ends[0]);
        add(set, ends[0], EPOLLIN);
        if (i % 8 == 0) IS(epolled(set, ends[0], 0), 0);
        takes(ends[1]);
        put_all(ends[1], "a", 1);
        IS(epolled(set, ends[0], PATIENCE), EPOLLIN);
        takes(ends[0]);
        if (i % 3) {
            IS(epoll_mod(set, ends[0], EPOLLOUT), 0);
        } else {
            drop(set, ends[0]);
            add(set, ends[0], EPOLLOUT);
        }
    }
    drop(set, ends[0]);
    IS(epolled(set, ends[0], 0), 0);
}

static void seen_from_outside(void) {
    add(set, ends[0], EPOLLIN);
    IS(epolled(set, ends[0], 0), 0);
    for (int i = 0; i < 3; i++) {
        IS(epoll_mod(set, ends[0], EPOLLOUT), 0);
        // (Behind another that is special.)
        struct pollfd both[2] = {{.fd = others[0], .events = POLLIN}, {.fd = set, .events = POLLIN}};
        IS(poll(both, 2, 0), 1);
        IS(polled(set, POLLIN, 0), POLLIN);
        IS(epoll_mod(set, ends[0], EPOLLIN), 0);
        IS(polled(set, POLLIN, 0), 0);
        drop(set, ends[0]);
        add(set, ends[0], EPOLLOUT);
        fd_set sets;
        FD_ZERO(&sets);
        FD_SET(set, &sets);
        IS(select(set + 1, &sets, NULL, NULL, &(struct timeval){0}), 1);
        drop(set, ends[0]);
        IS(polled(set, POLLIN, 0), 0);
        add(set, ends[0], EPOLLIN);
    }
    drop(set, ends[0]);
}

// Bytes that came after a wait in vain.
static void seen_after_a_wait(void) {
    add(set, ends[0], EPOLLIN);
    IS(epolled(set, ends[0], 5), 0);
    put_all(ends[1], "n", 1);
    IS(polled(set, POLLIN, 0), POLLIN);
    takes(ends[0]);
    IS(polled(set, POLLIN, 0), 0);
}

static void moves_between_sets(void) {
    int second = epoll_create1(0);
    for (int i = 0; i < 20; i++) {
        add(set, ends[0], EPOLLIN);
        IS(epolled(set, ends[0], 0), 0);
        drop(set, ends[0]);
        add(second, ends[0], EPOLLIN);
        put_all(ends[1], "m", 1);
        IS(epolled(second, ends[0], PATIENCE), EPOLLIN);
        IS(epolled(set, ends[0], 0), 0);
        takes(ends[0]);
        drop(second, ends[0]);
    }
    close(second);
}

static void same_data(void) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7}, got;
    for (int i = 0; i < 20; i++) {
        int fd = i % 2 ? others[0] : ends[0], peer = i % 2 ? others[1] : ends[1];
        IS(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
        put_all(peer, "d", 1);
        IS(epoll_wait(set, &got, 1, PATIENCE), 1);
        IS(got.data.u64, 7);
        takes(fd);
        drop(set, fd);
    }
}

static void *sleeper(void *result) {
    *(uint32_t *)result = epolled(set, ends[0], -1);
    return NULL;
}

static void changed_under_a_sleeper(void) {
    add(set, ends[0], EPOLLIN);
    IS(epolled(set, ends[0], 0), 0);
    uint32_t result = 0;
    pthread_t thread;
    IS(pthread_create(&thread, NULL, sleeper, &result), 0);
    sleep_ms(50);
    drop(set, ends[0]);
    add(set, ends[0], EPOLLOUT);
    IS(pthread_join(thread, NULL), 0);
    IS(result, EPOLLOUT);
    drop(set, ends[0]);
}

static void wants_room(int in) {
    add(in, ends[0], EPOLLIN);
    IS(epolled(in, ends[0], 0), 0);
    IS(epoll_mod(in, ends[0], EPOLLOUT), 0);
}

// A process that got the set passed, or by fork.
static void looks(int over, int given) {
    struct epoll_event event;
    IS(epoll_wait(given, &event, 1, PATIENCE), 1);
    IS(event.events, EPOLLOUT);
    IS(write(over, "", 1), 1);
    takes(over);
    IS(epoll_wait(given, &event, 1, 50), 0);
    exit(0);
}

static void is_looked_at(int over, pid_t child) {
    takes(over);
    drop(set, ends[0]);
    IS(write(over, "", 1), 1);
    IS(ended(child), 0);
    close(set);
}

// What is removed before a fork is not removed once more by the child.
static void is_removed_once(void) {
    int over[2];
    IS(socketpair(AF_UNIX, SOCK_STREAM, 0, over), 0);
    set = epoll_create1(0);
    add(set, ends[0], EPOLLIN);
    IS(epolled(set, ends[0], 0), 0);
    drop(set, ends[0]);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        takes(over[1]);
        struct epoll_event event;
        CHECK(epoll_wait(set, &event, 1, 0) >= 0);
        exit(0);
    }
    add(set, ends[0], EPOLLOUT);
    IS(write(over[0], "", 1), 1);
    IS(ended(child), 0);
    drop(set, ends[0]);
}

// A removed registration ends with its removal, also where the socket lives on under another number.
static void removed_and_closed(void) {
    add(set, others[0], EPOLLIN);
    IS(epolled(set, others[0], 0), 0);
    drop(set, others[0]);
    int twin = dup(others[0]);
    close(others[0]);
    put_all(others[1], "x", 1);
    IS(epolled(set, -1, 20), 0);
    close(others[1]);
    IS(epolled(set, -1, 50), 0);
    takes(twin);
    close(twin);
    IS(epolled(set, -1, 0), 0);
}

// What only the kernel knows is told to a wait that does not sleep, too.
static void ends_of_streams(void) {
    int pair[2];
    pair_here(pair);
    add(set, pair[0], EPOLLPRI);
    IS(epolled(set, pair[0], 0), 0);
    IS(epoll_mod(set, pair[0], EPOLLIN | EPOLLRDHUP), 0);
    IS(shutdown(pair[1], SHUT_WR), 0);
    sleep_ms(50);
    IS(epolled(set, pair[0], 0), EPOLLIN | EPOLLRDHUP);
    close(pair[0]), close(pair[1]);
}

static void with_a_set(void (*test)(void)) {
    set = epoll_create1(EPOLL_CLOEXEC);
    test();
    close(set);
}

int main(void) {
    int over[2];
    IS(socketpair(AF_UNIX, SOCK_STREAM, 0, over), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) looks(over[1], passed_over(over[1]));
    pair_here(ends);
    pair_here(others);
    with_a_set(errors_are_the_kernels);
    with_a_set(steps_of_an_event_loop);
    with_a_set(seen_from_outside);
    with_a_set(seen_after_a_wait);
    with_a_set(moves_between_sets);
    with_a_set(same_data);
    with_a_set(changed_under_a_sleeper);
    with_a_set(ends_of_streams);
    with_a_set(removed_and_closed);
    set = epoll_create1(0);
    wants_room(set);
    pass(over[0], set);
    is_looked_at(over[0], child);
    // From the next fork on, both have the sockets too.
    is_removed_once();
    set = epoll_create1(0);
    wants_room(set);
    IS(socketpair(AF_UNIX, SOCK_STREAM, 0, over), 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) looks(over[1], set);
    is_looked_at(over[0], child);
    say("what they came to");
}
