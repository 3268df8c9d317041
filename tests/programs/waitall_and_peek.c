// MSG_WAITALL waits for all, or the end; MSG_PEEK takes nothing, also across many sends; MSG_TRUNC takes without giving.
#include "check.h"

static void peer(int fd) {
    uint8_t text[1000];
    fill(text, 0, 1000, 1);
    for (int i = 0; i < 10; i++) put_all(fd, text + 100 * i, 100), sleep_ms(i % 3 ? 0 : 5);
    hear();
    put_all(fd, text, 1000);
    hear();
    put_all(fd, text, 300);
    IS(shutdown(fd, SHUT_WR), 0);
}

int main(void) {
    uint8_t text[2000];
    int fd = with_peer(peer);
    IS(recv(fd, text, 1000, MSG_WAITALL | MSG_PEEK), 1000);
    same(text, 0, 1000, 1);
    memset(text, 0, 1000);
    IS(recv(fd, text, 1000, MSG_WAITALL), 1000);
    same(text, 0, 1000, 1);
    FAILS(recv(fd, text, 10, MSG_PEEK | MSG_DONTWAIT), EAGAIN);
    say("peeked and taken");
    tell();
    IS(recv(fd, NULL, 400, MSG_WAITALL | MSG_TRUNC), 400);
    IS(recv(fd, text, 300, MSG_WAITALL), 300);
    same(text, 400, 300, 1);
    struct iovec v[3] = {{text, 100}, {text + 100, 0}, {text + 100, 200}};
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 3};
    IS(recvmsg(fd, &m, MSG_WAITALL), 300);
    same(text, 700, 300, 1);
    say("discarded and scattered");
    tell();
    IS(recv(fd, text, 1000, MSG_WAITALL), 300);
    IS(recv(fd, text, 1000, MSG_WAITALL), 0);
    IS(recv(fd, text, 1000, MSG_PEEK), 0);
    say("cut short by the end");
    peer_ends();
}
