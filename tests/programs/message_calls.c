// sendmmsg and recvmmsg, empty messages and vectors, addresses that a stream does not have, lengths of zero, bad descriptors.
#include "check.h"

static void peer(int fd) {
    uint8_t text[600];
    get_all(fd, text, 600);
    for (size_t i = 0; i < 3; i++) same(text + 200 * i, 0, 200, (int)i);
    tell();
    hear();
    put_pattern(fd, 100, 1);
    hear();
}

int main(void) {
    uint8_t text[600], in[3][100];
    int fd = with_peer(peer);
    struct mmsghdr mm[3] = {0};
    struct iovec v[6], u[3];
    for (int i = 0; i < 3; i++) {
        fill(text + 200 * i, 0, 200, i);
        v[2 * i] = (struct iovec){text + 200 * i, 50}, v[2 * i + 1] = (struct iovec){text + 200 * i + 50, 150};
        mm[i].msg_hdr.msg_iov = &v[2 * i], mm[i].msg_hdr.msg_iovlen = 2;
    }
    IS(sendmmsg(fd, mm, 3, MSG_NOSIGNAL), 3);
    for (int i = 0; i < 3; i++) IS(mm[i].msg_len, 200);
    hear();
    IS(send(fd, text, 0, 0), 0);
    IS(write(fd, text, 0), 0);
    IS(writev(fd, v, 0), 0);
    IS(sendmsg(fd, &(struct msghdr){0}, 0), 0);
    IS(read(fd, text, 0), 0);
    FAILS(recv(fd, text, 10, MSG_DONTWAIT), EAGAIN);
    memset(mm, 0, sizeof mm);
    for (int i = 0; i < 3; i++) u[i] = (struct iovec){in[i], 100}, mm[i].msg_hdr.msg_iov = &u[i], mm[i].msg_hdr.msg_iovlen = 1;
    FAILS(recvmmsg(fd, mm, 3, MSG_DONTWAIT, NULL), EAGAIN);
    tell();
    when_readable(fd);
    struct timespec t = {5, 0};
    IS(recvmmsg(fd, mm, 3, MSG_WAITFORONE, &t), 1);
    IS(mm[0].msg_len, 100);
    same(in[0], 0, 100, 1);
    say("messages");
    struct sockaddr_in from = {.sin_port = 77};
    socklen_t len = sizeof from;
    IS(getpeername(fd, (void *)&from, &len), 0);
    CHECK(len == sizeof from && from.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    IS(sendto(fd, "x", 1, 0, (void *)&from, sizeof from), 1);  // the address is not looked at
    say("addresses");
    int closed = dup(fd);
    close(closed);
    FAILS(recv(closed, text, 1, 0), EBADF);
    FAILS(send(closed, text, 1, 0), EBADF);
    FAILS(send(-1, text, 1, 0), EBADF);
    FAILS(ioctl(closed, FIONREAD, &closed), EBADF);
    int fresh = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(recv(fresh, text, 1, 0), ENOTCONN);
    FAILS(send(fresh, text, 1, MSG_NOSIGNAL), EPIPE);
    CHECK((polled(fresh, POLLIN | POLLOUT, 0) & (POLLOUT | POLLHUP)) == (POLLOUT | POLLHUP));
    FAILS(recv(0x7fffffff, text, 1, 0), EBADF);
    say("errors");
    tell();
    peer_ends();
}
