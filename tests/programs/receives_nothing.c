// A receive of no bytes waits until something could be received, and takes nothing; a read of none asks for nothing.
#include "check.h"

static void peer(int fd) {
    hear();
    sleep_ms(20);
    put_pattern(fd, 10, 1);
    hear();
    IS(shutdown(fd, SHUT_WR), 0);
}

int main(void) {
    uint8_t text[10];
    int fd = with_peer(peer);
    struct iovec empty = {text, 0};
    struct msghdr pieces = {.msg_iov = &empty, .msg_iovlen = 1}, none = {0};
    FAILS(recv(fd, text, 0, MSG_DONTWAIT), EAGAIN);
    FAILS(recvmsg(fd, &pieces, MSG_DONTWAIT), EAGAIN);
    FAILS(recvmsg(fd, &none, MSG_DONTWAIT), EAGAIN);
    IS(read(fd, text, 0), 0);
    IS(readv(fd, &empty, 1), 0);
    say("nothing there");
    tell();
    IS(recv(fd, text, 0, 0), 0);
    IS(recv(fd, text, 0, MSG_DONTWAIT | MSG_PEEK), 0);
    IS(recvmsg(fd, &none, MSG_WAITALL), 0);
    get_pattern(fd, 10, 1);
    FAILS(recv(fd, text, 0, MSG_DONTWAIT), EAGAIN);
    say("waited, and nothing taken");
    tell();
    IS(recv(fd, text, 0, 0), 0);
    IS(recv(fd, text, 10, 0), 0);
    say("the end");
    peer_ends();
}
