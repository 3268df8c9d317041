// An inner epoll set that is told of by its edges: each is told once, whatever is in it and whoever asks meanwhile, and with its own data.
#include "check.h"

enum { EDGE = EPOLLIN | EPOLLET };

static int inner, outer, ends[2];

static void begin(uint32_t events) {
    inner = epoll_create1(0), outer = epoll_create1(0);
    pair_here(ends);
    IS(epoll_add(outer, inner, EDGE), 0);
    IS(epoll_add(inner, ends[0], events), 0);
}

static void end(void) {
    for (int i = 0; i < 2; i++) close(ends[i]);
    close(inner), close(outer);
}

static void room(void) {
    begin(EPOLLIN | EPOLLOUT | EPOLLET);
    IS(epolled(outer, inner, PATIENCE), EPOLLIN);
    IS(epolled(outer, inner, 5), 0);
    // Nothing was taken from the inner one.
    IS(epolled(inner, ends[0], PATIENCE), EPOLLOUT);
    end();
}

static void bytes(uint32_t how) {
    begin(EPOLLIN | how);
    for (int i = 0; i < 3; i++) {
        put_pattern(ends[1], 10, i);
        IS(epolled(outer, inner, PATIENCE), EPOLLIN);
        // The edge of a token that came after its bytes may be told too; no more than that.
        while (epolled(outer, inner, 5)) {}
        IS(polled(inner, POLLIN, 0), POLLIN);
        IS(polled(inner, POLLIN, 0), POLLIN);
        IS(epolled(outer, inner, 5), 0);
    }
    IS(epolled(inner, ends[0], PATIENCE), EPOLLIN);
    for (int i = 0; i < 3; i++) get_pattern(ends[0], 10, i);
    end();
}

// Of a pipe in it, beside a connection that is carried.
static void a_pipe(void) {
    int sides[2];
    begin(EPOLLIN);
    IS(pipe(sides), 0);
    IS(epoll_add(inner, sides[0], EPOLLIN | EPOLLONESHOT), 0);
    CHECK(write(sides[1], "", 1) == 1);
    IS(epolled(outer, inner, PATIENCE), EPOLLIN);
    IS(polled(inner, POLLIN, 0), POLLIN);
    IS(epolled(outer, inner, 5), 0);
    IS(epolled(inner, sides[0], PATIENCE), EPOLLIN);
    IS(polled(inner, POLLIN, 0), 0);
    close(sides[0]), close(sides[1]);
    end();
}

// It has the data of a connection beside it.
static void same_data(void) {
    int beside[2];
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7}, got[4];
    inner = epoll_create1(0), outer = epoll_create1(0);
    pair_here(ends);
    pair_here(beside);
    IS(epoll_add(inner, ends[0], EPOLLIN), 0);
    IS(epoll_ctl(outer, EPOLL_CTL_ADD, beside[0], &event), 0);
    IS(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event), 0);
    IS(epoll_wait(outer, got, 4, 5), 0);
    put_pattern(ends[1], 10, 1);
    IS(epoll_wait(outer, got, 4, PATIENCE), 1);
    CHECK(got[0].data.u64 == 7 && got[0].events == EPOLLIN);
    put_pattern(beside[1], 10, 1);
    sleep_ms(5);
    IS(epoll_wait(outer, got, 4, PATIENCE), 2);
    CHECK(got[0].data.u64 == 7 && got[1].data.u64 == 7);
    get_pattern(beside[0], 10, 1);
    sleep_ms(5);
    IS(epoll_wait(outer, got, 4, PATIENCE), 1);
    get_pattern(ends[0], 10, 1);
    IS(epoll_wait(outer, got, 4, 5), 0);
    for (int i = 0; i < 2; i++) close(beside[i]);
    end();
}

int main(void) {
    room();
    bytes(0);
    bytes(EPOLLET);
    a_pipe();
    same_data();
    say("each edge was told once");
}
