// Who wrote first is told of first, also where one connection is new, or moves, and others are in rings and busy.
#include "check.h"

enum { BUSY = 3, AGES = 60 };

static int set, busy[BUSY][2], fresh[2];
// Where the program is, for whoever reads that it failed.
static struct {
    int round, age, room;
    uint32_t how;
} where;

// The byte has come: whoever looks from now on is to see it.
static void put(int ends[2]) {
    int there = 0;
    put_all(ends[1], "x", 1);
    while (there == 0) IS(ioctl(ends[0], FIONREAD, &there), 0);
}

static void take(int fd) { get_all(fd, &(char){0}, 1); }

// What the set tells of, in its order, until there are as many, `room` at a time; and all of it is read.
static void is_told(const int *expected, int n, int room) {
    struct epoll_event got[8];
    for (int at = 0; at < n;) {
        int more = epoll_wait(set, got, room, PATIENCE);
        CHECK(more > 0 && at + more <= n);
        for (int i = 0; i < more; i++, at++) {
            if (got[i].data.fd != expected[at])
                fprintf(stderr, "round %d, age %d, room %d, how %x: place %d of %d (%d told)\n", where.round, where.age, where.room, where.how, at, n, more);
            IS(got[i].data.fd, expected[at]);
            take(got[i].data.fd);
        }
    }
}

static void nothing(void) {
    struct epoll_event got;
    IS(epoll_wait(set, &got, 1, 0), 0);
}

// A connection is busy until just now, so that the set has no reason to look elsewhere.
static void bustle(int times) {
    for (int i = 0; i < times; i++) {
        put(busy[BUSY - 1]);
        is_told((int[]){busy[BUSY - 1][0]}, 1, 8);
    }
}

static void exchange(void) {
    put_all(fresh[0], "y", 1), take(fresh[1]);
}

// From its first byte until it has long moved.
static void at_every_age(uint32_t how, int room) {
    struct sockaddr_in at;
    int listener = listen_on(&at);
    fresh[1] = connect_to(&at), fresh[0] = accept_from(listener);
    close(listener);
    IS(epoll_add(set, fresh[0], EPOLLIN | how), 0);
    for (int age = 0; age < AGES; age++) {
        where.age = age, where.room = room, where.how = how;
        bustle(3);
        put(fresh), put(busy[0]);
        is_told((int[]){fresh[0], busy[0][0]}, 2, room);
        exchange();
        bustle(3);
        put(busy[1]), put(fresh), put(busy[0]);
        is_told((int[]){busy[1][0], fresh[0], busy[0][0]}, 3, room);
        exchange();
        if (age % 5 == 4) sleep_ms(1);
    }
    nothing();
    close(fresh[0]), close(fresh[1]);
}

int main(void) {
    set = epoll_create1(0);
    for (int i = 0; i < BUSY; i++) {
        pair_here(busy[i]);
        IS(epoll_add(set, busy[i][0], EPOLLIN), 0);
    }
    for (where.round = 0; where.round < 5; where.round++) {
        at_every_age(0, 8);
        at_every_age(EPOLLET, 8);
        at_every_age(0, 1);
        at_every_age(EPOLLET, 2);
    }
    say("in turn");
}
