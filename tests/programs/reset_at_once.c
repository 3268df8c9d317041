// The other end closes while bytes lie unread there, or resets: the very next look says so, whatever was asked before.
#include "check.h"

static int ends[2];

static void linger_zero(int fd) {
    IS(setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger)), 0);
}

// `asked`: how often the end that is told found nothing before.
static void reads(bool unread, int asked) {
    char byte;
    pair_here(ends);
    if (unread) put_pattern(ends[0], 100, 1);
    else linger_zero(ends[1]);
    for (int i = 0; i < asked; i++) FAILS(recv(ends[0], &byte, 1, MSG_DONTWAIT), EAGAIN);
    close(ends[1]);
    FAILS(recv(ends[0], &byte, 1, MSG_DONTWAIT), ECONNRESET);
    IS(recv(ends[0], &byte, 1, MSG_DONTWAIT), 0);
    FAILS(send(ends[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    close(ends[0]);
}

static void peeks(bool unread) {
    char byte;
    pair_here(ends);
    nonblocking(ends[0]);
    if (unread) put_pattern(ends[0], 100, 1);
    else linger_zero(ends[1]);
    FAILS(read(ends[0], &byte, 1), EAGAIN);
    close(ends[1]);
    FAILS(recv(ends[0], &byte, 1, MSG_PEEK), ECONNRESET);
    IS(read(ends[0], &byte, 1), 0);
    close(ends[0]);
}

static void writes(bool unread) {
    pair_here(ends);
    if (unread) put_pattern(ends[0], 100, 1);
    else linger_zero(ends[1]);
    close(ends[1]);
    FAILS(send(ends[0], "x", 1, MSG_NOSIGNAL), ECONNRESET);
    FAILS(send(ends[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    IS(recv(ends[0], &(char){0}, 1, MSG_DONTWAIT), 0);
    close(ends[0]);
}

// What was there before is read before.
static void reads_before(bool unread) {
    char byte;
    pair_here(ends);
    put_pattern(ends[1], 100, 2);
    if (unread) put_pattern(ends[0], 100, 1);
    else linger_zero(ends[1]);
    close(ends[1]);
    get_pattern(ends[0], 100, 2);
    FAILS(recv(ends[0], &byte, 1, MSG_DONTWAIT), ECONNRESET);
    IS(recv(ends[0], &byte, 1, MSG_DONTWAIT), 0);
    close(ends[0]);
}

static void closes_in_peace(void) {
    char byte;
    pair_here(ends);
    FAILS(recv(ends[0], &byte, 1, MSG_DONTWAIT), EAGAIN);
    close(ends[1]);
    IS(recv(ends[0], &byte, 1, MSG_DONTWAIT), 0);
    close(ends[0]);
}

static void peer(int fd) {
    hear();
    close(fd);
    tell();
}

static void elsewhere(void) {
    char byte;
    int fd = with_peer(peer);
    put_pattern(fd, 100, 1);
    FAILS(recv(fd, &byte, 1, MSG_DONTWAIT), EAGAIN);
    tell();
    hear();
    FAILS(recv(fd, &byte, 1, MSG_DONTWAIT), ECONNRESET);
    close(fd);
    peer_ends();
}

int main(void) {
    for (int unread = 0; unread < 2; unread++) {
        for (int asked = 0; asked < 3; asked++) reads(unread, asked);
        peeks(unread);
        writes(unread);
        reads_before(unread);
    }
    closes_in_peace();
    for (int i = 0; i < 10; i++) elsewhere();
    say("reset at once");
}
