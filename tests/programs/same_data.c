// Registrations of one set that have the same data: each is told of by itself, whatever of it a ring says and whatever the kernel.
#include "check.h"

enum { PAIRS = 3 };

static int set, ends[PAIRS][2], places[2];

static int add(int fd, uint32_t events) {
    struct epoll_event event = {.events = events, .data.u64 = 7};
    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
}

// So many events, each of which says `expected`, in one call.
static void told(int n, uint32_t expected) {
    struct epoll_event got[2 * PAIRS];
    memset(got, 0, sizeof got);
    IS(epoll_wait(set, got, 2 * PAIRS, PATIENCE), n);
    for (int i = 0; i < n; i++) {
        IS(got[i].data.u64, 7);
        IS(got[i].events, expected);
    }
}

static void begin(uint32_t events, int slept_ms) {
    set = epoll_create1(0);
    for (int i = 0; i < PAIRS; i++) {
        pair_here(ends[i]);
        IS(add(ends[i][0], events), 0);
    }
    IS(epoll_wait(set, &(struct epoll_event){0}, 1, slept_ms), 0);
}

static void end(void) {
    for (int i = 0; i < PAIRS; i++) close(ends[i][0]), close(ends[i][1]);
    close(set);
}

static void bytes(uint32_t how, int slept_ms) {
    begin(EPOLLIN | how, slept_ms);
    for (int i = 0; i < PAIRS; i++) put_pattern(ends[i][1], 10, i);
    told(PAIRS, EPOLLIN);
    end();
}

// What only the kernel knows comes to the event of the ring's that is of the same registration, and to no other's.
static void ends_of_file(uint32_t how) {
    begin(EPOLLIN | EPOLLRDHUP | how, 5);
    for (int i = 0; i < PAIRS; i++) {
        put_pattern(ends[i][1], 10, i);
        IS(shutdown(ends[i][1], SHUT_WR), 0);
    }
    sleep_ms(5);
    told(PAIRS, EPOLLIN | EPOLLRDHUP);
    end();
}

// Beside a descriptor of the kernel's.
static void beside_a_pipe(void) {
    begin(EPOLLIN, 5);
    IS(pipe(places), 0);
    IS(add(places[0], EPOLLIN), 0);
    for (int i = 0; i < PAIRS; i++) put_pattern(ends[i][1], 10, i);
    CHECK(write(places[1], "", 1) == 1);
    // Just after a look at the kernel's set its own may come a moment later.
    sleep_ms(2);
    told(PAIRS + 1, EPOLLIN);
    close(places[0]), close(places[1]);
    end();
}

int main(void) {
    uint32_t ways[] = {0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT};
    for (int i = 0; i < 4; i++) {
        bytes(ways[i], 0);
        bytes(ways[i], 5);
        ends_of_file(ways[i]);
    }
    beside_a_pipe();
    say("an event for each registration");
}
