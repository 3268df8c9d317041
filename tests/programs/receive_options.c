// Options that change what a receive gives: how many bytes wait behind those received (TCP_INQ), and a receive that is an option (TCP_ZEROCOPY_RECEIVE).
#include "check.h"

enum { INQ = 36, ZEROCOPY_RECEIVE = 35, MUCH = 10000 };

// struct tcp_zerocopy_receive of <linux/tcp.h>, which does not go with the C library's own header.
struct zero_copy {
    uint64_t address;
    uint32_t length, recv_skip_hint, inq;
    int32_t err;
    uint64_t copybuf_address;
    int32_t copybuf_len;
    uint32_t flags;
};

static void peer(int fd) {
    for (int i = 0; i < 3; i++) put_pattern(fd, 1000, i), hear();
    put_pattern(fd, MUCH, 5);
}

// An option that an accepted socket has from its listener: each message says when it came.
static void from_the_listener(void) {
    struct sockaddr_in at;
    int listener = listen_on(&at), one = 1;
    IS(setsockopt(listener, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one), 0);
    int here = connect_to(&at), fd = accept_from(listener);
    warm_pair(here, fd);
    // A worker of the kernel's turns the clock on, when a processor comes to it: the first messages
    // may have no time.
    bool dated = false;
    for (int tries = 0; !dated; tries++) {
        CHECK(tries < PATIENCE / 50);
        put_pattern(here, 100, 1);
        uint8_t text[100];
        char control[100];
        struct iovec piece = {text, sizeof text};
        struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        when_readable(fd);
        IS(recvmsg(fd, &message, 0), 100);
        same(text, 0, sizeof text, 1);
        struct cmsghdr *first = CMSG_FIRSTHDR(&message);
        CHECK(!first || first->cmsg_type == SO_TIMESTAMPNS);
        dated = first;
        if (!dated) sleep_ms(50);
    }
    close(fd), close(here), close(listener);
    say("it says when it came");
}

int main(void) {
    from_the_listener();
    int fd = with_peer(peer), one = 1;
    IS(setsockopt(fd, IPPROTO_TCP, INQ, &one, sizeof one), 0);
    for (int i = 0; i < 3; i++) {
        sleep_ms(20);
        uint8_t text[1000];
        char control[100];
        struct iovec piece = {text, 100};
        struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        IS(recvmsg(fd, &message, 0), 100);
        struct cmsghdr *first = CMSG_FIRSTHDR(&message);
        CHECK(first && first->cmsg_type == INQ);
        say("%d bytes wait behind them", *(int *)CMSG_DATA(first));
        get_all(fd, text + 100, 900);
        same(text, 0, sizeof text, i);
        tell();
    }
    void *place = mmap(NULL, 1 << 16, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(place != MAP_FAILED);
    static uint8_t all[2 * MUCH], copy[MUCH];
    size_t got = 0;
    while (got < MUCH) {
        when_readable(fd);
        struct zero_copy z = {.address = (uint64_t)(uintptr_t)place, .length = 1 << 16, .copybuf_address = (uint64_t)(uintptr_t)copy, .copybuf_len = sizeof copy};
        socklen_t len = sizeof z;
        IS(getsockopt(fd, IPPROTO_TCP, ZEROCOPY_RECEIVE, &z, &len), 0);
        CHECK(got + z.length + (size_t)z.copybuf_len <= sizeof all);
        memcpy(all + got, place, z.length), got += z.length;
        memcpy(all + got, copy, (size_t)z.copybuf_len), got += (size_t)z.copybuf_len;
        if (z.recv_skip_hint) {
            ssize_t n = recv(fd, all + got, z.recv_skip_hint, MSG_DONTWAIT);
            CHECK(n > 0);
            got += (size_t)n;
        }
    }
    IS(got, MUCH);
    same(all, 0, MUCH, 5);
    peer_ends();
    say("%d bytes without a copy, or with one", MUCH);
}
