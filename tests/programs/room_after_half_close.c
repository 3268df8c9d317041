// The other end has said that nothing more comes from it, and reads on: each time that there is room to send again,
// that is an edge.
#include "check.h"

enum { ALL = EPOLLIN | EPOLLOUT | EPOLLRDHUP };

static int set, ends[2];

static uint32_t waited(int ms) {
    struct epoll_event got = {.events = 0};
    int n = epoll_wait(set, &got, 1, ms);
    CHECK(n >= 0);
    return n ? got.events : 0;
}

// What is sent until there is no room.
static size_t sent_until_full(void) {
    static const char bytes[5000];
    size_t sent = 0;
    for (ssize_t n; (n = send(ends[0], bytes, sizeof bytes, MSG_DONTWAIT)) > 0;) sent += n;
    CHECK(errno == EAGAIN);
    return sent;
}

static void received(size_t sent) {
    static char bytes[5000];
    for (ssize_t n; sent > 0; sent -= n) {
        n = recv(ends[1], bytes, sizeof bytes, 0);
        CHECK(n > 0);
    }
}

static void arm(uint32_t how) {
    if (how & EPOLLONESHOT) IS(epoll_mod(set, ends[0], ALL | how), 0);
}

// Waits until all is told. (What is no edge is told before there is room, too.)
static void told_all(uint32_t how) {
    uint32_t told = 0;
    for (int64_t end = now_ms() + PATIENCE; told != ALL && now_ms() < end; arm(how)) told = waited(PATIENCE);
    IS(told, ALL);
}

// `speaks`: something came from there before. `sleeps`: somebody slept on the set while there was no room.
static void room_is_told(uint32_t how, bool speaks, bool sleeps) {
    struct sockaddr_in at;
    int listener = listen_on(&at);
    ends[1] = connect_to(&at), ends[0] = accept_from(listener);
    set = epoll_create1(0);
    IS(epoll_add(set, ends[0], ALL | how), 0);
    IS(waited(PATIENCE), EPOLLOUT);
    // (So little stays on TCP.)
    if (speaks) put_pattern(ends[1], 10, 7), get_pattern(ends[0], 10, 7);
    for (int i = 0; i < 50; i++) put_pattern(ends[0], 10, i), get_pattern(ends[1], 10, i);
    IS(shutdown(ends[1], SHUT_WR), 0);
    arm(how);
    told_all(how);
    IS(recv(ends[0], &(char){0}, 1, 0), 0);
    for (int i = 0; i < 5; i++) {
        size_t sent = sent_until_full();
        arm(how);
        uint32_t early = 0;
        for (uint32_t told = 1; how & (EPOLLET | EPOLLONESHOT) && told; early |= told) told = waited(0);
        arm(how);
        early |= waited(sleeps ? 5 : 0);
        arm(how);
        received(sent);
        // (Whoever is told of room may find none, now and then.)
        if (!(early & EPOLLOUT)) told_all(how);
    }
    close(ends[0]), close(ends[1]), close(set), close(listener);
}

int main(void) {
    static const uint32_t hows[] = {0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT};
    for (size_t i = 0; i < 4 * (sizeof hows / sizeof *hows); i++) room_is_told(hows[i / 4], i % 2, i % 4 / 2);
    say("room is told of");
}
