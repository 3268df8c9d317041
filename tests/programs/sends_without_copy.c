// SO_ZEROCOPY alone changes nothing, and QEMU sets it on whatever it connects; a send with MSG_ZEROCOPY is told of in the error
// queue once the kernel no longer needs its memory. The stream around it is whole.
#include "check.h"

#include <linux/errqueue.h>

enum { LARGE = 100000, SENDS = 3 };

// On a socket that is new, or has come into a ring by now.
static void wanted(int fd) {
    int one = 1, is = 0;
    socklen_t len = sizeof is;
    IS(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one), 0);
    IS(getsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &is, &len), 0);
    IS(is, 1);
}

static void peer(int fd) {
    wanted(fd);
    warm_up(fd, true);
    get_pattern(fd, 50, 1);
    for (int i = 0; i < SENDS; i++) get_pattern(fd, LARGE, i);
    get_pattern(fd, 50, 2);
    warm_up(fd, true);
    // Nobody has read this when the other end sends the last.
    put_pattern(fd, 1000, 7);
    IS(shutdown(fd, SHUT_WR), 0);
    tell();
    get_pattern(fd, LARGE, 8);
    IS(recv(fd, &(char){0}, 1, 0), 0);
}

static void send_large(int fd, int salt) {
    static uint8_t memory[LARGE];
    fill(memory, 0, sizeof memory, salt);
    for (size_t at = 0; at < sizeof memory;) {
        struct iovec piece = {memory + at, sizeof memory - at};
        struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
        ssize_t n = at ? sendmsg(fd, &message, MSG_ZEROCOPY) : send(fd, memory, sizeof memory / 2, MSG_ZEROCOPY);
        CHECK(n > 0);
        at += (size_t)n;
    }
}

// The kernel tells of all sends up to `upto`, each once and in turn: then their memory is the program's again.
static void told_of(int fd, unsigned *from, unsigned upto) {
    while (*from < upto) {
        CHECK(polled(fd, 0, PATIENCE) & POLLERR);
        char control[200];
        struct msghdr message = {.msg_control = control, .msg_controllen = sizeof control};
        IS(recvmsg(fd, &message, MSG_ERRQUEUE), 0);
        struct cmsghdr *first = CMSG_FIRSTHDR(&message);
        CHECK(first && first->cmsg_level == SOL_IP && first->cmsg_type == IP_RECVERR);
        struct sock_extended_err told;
        memcpy(&told, CMSG_DATA(first), sizeof told);
        IS(told.ee_origin, SO_EE_ORIGIN_ZEROCOPY);
        IS(told.ee_errno, 0);
        IS(told.ee_info, *from);
        *from = told.ee_data + 1;
    }
    IS(*from, upto);
}

int main(void) {
    int fd = with_peer_and(peer, false);
    unsigned told = 0;
    warm_up(fd, false);
    wanted(fd);
    put_pattern(fd, 50, 1);
    for (int i = 0; i < SENDS; i++) send_large(fd, i), told_of(fd, &told, 2 * ((unsigned)i + 1));
    say("each send is told of");
    put_pattern(fd, 50, 2);
    warm_up(fd, false);
    say("the stream is whole");
    hear();
    send_large(fd, 8);
    told_of(fd, &told, 2 * SENDS + 2);
    get_pattern(fd, 1000, 7);
    IS(recv(fd, &(char){0}, 1, 0), 0);
    IS(shutdown(fd, SHUT_WR), 0);
    say("also before what lies unread, and the end");
    peer_ends();
}
