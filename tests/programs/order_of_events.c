// What the last wait did not tell of comes in the order in which it became ready, and whatever stays ready has its turn.
#include "check.h"

enum { MANY = 7 };

static int set, ends[MANY][2];
static const uint32_t hows[] = {0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT};

static void begin(uint32_t how) {
    set = epoll_create1(0);
    for (int i = 0; i < MANY; i++) {
        pair_here(ends[i]);
        IS(epoll_add(set, ends[i][0], EPOLLIN | how), 0);
    }
}

static void end(void) {
    for (int i = 0; i < MANY; i++) close(ends[i][0]), close(ends[i][1]);
    close(set);
}

static void shuffled(int order[MANY], unsigned round) {
    for (int i = 0; i < MANY; i++) order[i] = i;
    for (int i = MANY - 1; i > 0; i--) {
        round = round * 1103515245 + 12345;
        int k = (int)(round >> 16) % (i + 1), kept = order[i];
        order[i] = order[k], order[k] = kept;
    }
}

// `room`: so many at a time.
static void as_written(uint32_t how, int room) {
    struct epoll_event got[MANY];
    begin(how);
    for (unsigned round = 0; round < 60; round++) {
        int order[MANY], told[MANY], n = 0;
        // Nothing is left, and nobody was told of lately.
        while (epoll_wait(set, got, MANY, round % 10 ? 0 : 2) > 0) {}
        shuffled(order, round);
        for (int i = 0; i < MANY; i++) {
            put_pattern(ends[order[i]][1], 10, i);
            if (i % 3 == 2) usleep(200);
        }
        while (n < MANY) {
            int more = epoll_wait(set, got, room, PATIENCE);
            CHECK(more > 0 && n + more <= MANY);
            for (int i = 0; i < more; i++) told[n + i] = got[i].data.fd;
            for (int i = 0; i < more; i++) get_pattern(told[n + i], 10, n + i);
            n += more;
        }
        for (int i = 0; i < MANY; i++) {
            IS(told[i], ends[order[i]][0]);
            if (how & EPOLLONESHOT) IS(epoll_mod(set, told[i], EPOLLIN | how), 0);
        }
    }
    end();
}

// A pipe, and then a connection, while nobody looks.
static void a_pipe_first(void) {
    struct epoll_event got[4];
    int sides[2];
    begin(0);
    IS(pipe(sides), 0);
    IS(epoll_add(set, sides[0], EPOLLIN), 0);
    for (int round = 0; round < 20; round++) {
        while (epoll_wait(set, got, 4, 0) > 0) {}
        CHECK(write(sides[1], "", 1) == 1);
        sleep_ms(5);
        put_pattern(ends[0][1], 10, 1);
        IS(epoll_wait(set, got, 4, PATIENCE), 2);
        IS(got[0].data.fd, sides[0]);
        IS(got[1].data.fd, ends[0][0]);
        CHECK(read(sides[0], &(char){0}, 1) == 1);
        get_pattern(ends[0][0], 10, 1);
    }
    close(sides[0]), close(sides[1]);
    end();
}

// A new connection, and then a word on one that is there already.
static void a_connection_first(void) {
    struct epoll_event got[4];
    struct sockaddr_in at;
    int listener = listen_on(&at);
    begin(0);
    IS(epoll_add(set, listener, EPOLLIN), 0);
    for (int round = 0; round < 20; round++) {
        while (epoll_wait(set, got, 4, 0) > 0) {}
        int fresh = connect_to(&at);
        sleep_ms(5);
        put_pattern(ends[0][1], 10, 1);
        IS(epoll_wait(set, got, 4, PATIENCE), 2);
        IS(got[0].data.fd, listener);
        IS(got[1].data.fd, ends[0][0]);
        close(accept_from(listener)), close(fresh);
        get_pattern(ends[0][0], 10, 1);
    }
    close(listener);
    end();
}

// All stay ready, and there is room for one, or two: each is told of as often, the kernel's own too.
static void taking_turns(int room) {
    enum { WAITS = 1000 };
    struct epoll_event got[2];
    int told[MANY + 1] = {0}, sides[2];
    begin(0);
    IS(pipe(sides), 0);
    IS(epoll_add(set, sides[0], EPOLLIN), 0);
    CHECK(write(sides[1], "", 1) == 1);
    for (int i = 0; i < MANY; i++) put_pattern(ends[i][1], 10, 1);
    sleep_ms(2);
    for (int i = 0; i < WAITS; i++) {
        int n = epoll_wait(set, got, room, PATIENCE);
        CHECK(n > 0);
        for (int k = 0; k < n; k++) {
            int which = MANY;
            for (int j = 0; j < MANY; j++) which = got[k].data.fd == ends[j][0] ? j : which;
            told[which]++;
        }
    }
    for (int i = 0; i <= MANY; i++) {
        if (told[i] * (MANY + 1) < WAITS * room / 3) fprintf(stderr, "number %d was told %d times\n", i, told[i]);
        CHECK(told[i] * (MANY + 1) >= WAITS * room / 3);
    }
    close(sides[0]), close(sides[1]);
    end();
}

int main(void) {
    for (size_t i = 0; i < sizeof hows / sizeof *hows; i++) {
        as_written(hows[i], MANY);
        as_written(hows[i], 3);
    }
    a_pipe_first();
    a_connection_first();
    taking_turns(1);
    taking_turns(2);
    say("in turn");
}
