// A socket that is always writable, and whose other end half-closes, closes, resets or dies: what is told of it is told whole, from the first event after that on, however it
// is registered.
#include "check.h"

enum { ALL = EPOLLIN | EPOLLOUT | EPOLLRDHUP };

static int set, ends[2];
static const uint32_t hows[] = {0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT};

static void half_closes(void) { IS(shutdown(ends[1], SHUT_WR), 0); }

static void says_and_half_closes(void) {
    put_pattern(ends[1], 10, 1);
    half_closes();
}

static void closes(void) { IS(close(ends[1]), 0); }

static void resets(void) {
    IS(setsockopt(ends[1], SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger)), 0);
    closes();
}

static void shuts_itself(void) { IS(shutdown(ends[0], SHUT_RD), 0); }

static void shuts_all(void) {
    IS(shutdown(ends[0], SHUT_WR), 0);
    half_closes();
}

static const struct {
    void (*happens)(void);
    uint32_t expected;
} cases[] = {
    {half_closes, ALL},
    {says_and_half_closes, ALL},
    {closes, ALL},
    {resets, ALL | EPOLLERR | EPOLLHUP},
    {shuts_itself, ALL},
    {shuts_all, ALL | EPOLLHUP},
};

static uint32_t waited(int ms) {
    struct epoll_event got = {.events = 0};
    int n = epoll_wait(set, &got, 1, ms);
    CHECK(n >= 0);
    return n ? got.events : 0;
}

// `slept`: somebody slept on the set just before.
static void told_whole(void (*happens)(void), uint32_t expected, uint32_t how, bool slept) {
    set = epoll_create1(0);
    pair_here(ends);
    IS(epoll_add(set, ends[0], ALL | how), 0);
    IS(waited(PATIENCE), EPOLLOUT);
    if (how & EPOLLONESHOT) IS(epoll_mod(set, ends[0], ALL | how), 0);
    if (slept && how & EPOLLET && !(how & EPOLLONESHOT)) IS(waited(5), 0);
    happens();
    sleep_ms(3);
    for (int i = 0; i < 20; i++) {
        IS(waited(PATIENCE), expected);
        if (how & (EPOLLONESHOT | EPOLLET)) IS(waited(i == 7 ? 5 : 0), 0);
        if (how & (EPOLLONESHOT | EPOLLET)) IS(epoll_mod(set, ends[0], ALL | how), 0);
    }
    // Who asks for less is told of less, and of errors all the same.
    uint32_t less = EPOLLOUT | EPOLLERR | EPOLLHUP;
    IS(epoll_mod(set, ends[0], EPOLLOUT | how), 0);
    IS(waited(PATIENCE), expected & less);
    less = EPOLLIN | EPOLLERR | EPOLLHUP;
    IS(epoll_mod(set, ends[0], EPOLLIN | how), 0);
    IS(waited(PATIENCE), expected & less);
    close(ends[0]), close(set);
    if (happens != closes && happens != resets) close(ends[1]);
}

static void peer(int fd) {
    tell();
    pause();
    close(fd);
}

// Nobody says that this end comes: a program that arms it again and again hears of it.
static void dies(uint32_t how) {
    int fd = with_peer(peer);
    set = epoll_create1(0);
    IS(epoll_add(set, fd, ALL | how), 0);
    IS(waited(PATIENCE), EPOLLOUT);
    hear();
    CHECK(kill(other, SIGKILL) == 0);
    ended(other);
    bool seen = false;
    for (int64_t end = now_ms() + PATIENCE; !seen && now_ms() < end;) {
        IS(epoll_mod(set, fd, ALL | how), 0);
        seen = waited(PATIENCE) & EPOLLIN;
    }
    CHECK(seen);
    IS(recv(fd, &(char){0}, 1, MSG_DONTWAIT), 0);
    close(fd), close(set), close(side);
}

int main(void) {
    for (size_t i = 0; i < sizeof hows / sizeof *hows; i++) {
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
            told_whole(cases[k].happens, cases[k].expected, hows[i], false);
            told_whole(cases[k].happens, cases[k].expected, hows[i], true);
        }
        dies(hows[i]);
    }
    say("told whole");
}
