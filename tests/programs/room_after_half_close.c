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

int main(void) {
    struct sockaddr_in at;
    int listener = listen_on(&at);
    for (int round = 0; round < 4; round++) {
        ends[1] = connect_to(&at), ends[0] = accept_from(listener);
        set = epoll_create1(0);
        IS(epoll_add(set, ends[0], ALL | EPOLLET), 0);
        IS(waited(PATIENCE), EPOLLOUT);
        // (What comes from there stays on TCP.)
        if (round % 2) put_pattern(ends[1], 10, 7), get_pattern(ends[0], 10, 7);
        for (int i = 0; i < 50; i++) put_pattern(ends[0], 10, i), get_pattern(ends[1], 10, i);
        IS(shutdown(ends[1], SHUT_WR), 0);
        for (uint32_t told = 0; told != ALL;) told = waited(PATIENCE);
        IS(recv(ends[0], &(char){0}, 1, 0), 0);
        for (int i = 0; i < 5; i++) {
            size_t sent = sent_until_full();
            while (waited(0)) {}
            if (round / 2) IS(waited(5), 0);
            received(sent);
            IS(waited(PATIENCE), ALL);
        }
        close(ends[0]), close(ends[1]), close(set);
    }
    say("room is told of");
}
