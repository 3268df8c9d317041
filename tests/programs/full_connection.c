// Non-blocking writes end in EAGAIN; then nothing reports room until the other end has read, and then everything does.
#include "check.h"

static void peer(int fd) {
    for (int i = 0; i < 4; i++) {
        uint64_t n;
        CHECK(read(side, &n, 8) == 8);
        get_pattern(fd, n, i);
    }
}

int main(void) {
    int fd = with_peer(peer), set = epoll_create1(0), edge = epoll_create1(0);
    nonblocking(fd);
    IS(epoll_add(set, fd, EPOLLOUT), 0);
    IS(epoll_add(edge, fd, EPOLLOUT | EPOLLET), 0);
    IS(epolled(set, fd, PATIENCE), EPOLLOUT);
    IS(epolled(edge, fd, PATIENCE), EPOLLOUT);
    for (int i = 0; i < 4; i++) {
        uint8_t text[5000];
        uint64_t sent = 0;
        // Until nothing goes any more: the kernel's buffers grow for a while after they were full.
        for (int refused = 0; refused < 2;) {
            fill(text, sent, sizeof text, i);
            ssize_t n = i % 2 ? send(fd, text, sizeof text, MSG_NOSIGNAL) : write(fd, text, sizeof text);
            int error = errno;
            if (n < 0 && ++refused < 2) sleep_ms(50);
            if (n >= 0) sent += (uint64_t)n, refused = 0;
            errno = error;
        }
        CHECK(errno == EAGAIN && sent > 0);
        IS(polled(fd, POLLOUT, 50), 0);
        IS(epolled(set, fd, 50), 0);
        IS(epolled(edge, fd, 0), 0);
        struct timeval zero = {0, 0};
        fd_set w;
        FD_ZERO(&w);
        FD_SET(fd, &w);
        IS(select(fd + 1, NULL, &w, NULL, &zero), 0);
        CHECK(write(side, &sent, 8) == 8);
        IS(polled(fd, POLLOUT, PATIENCE), POLLOUT);
        IS(epolled(set, fd, PATIENCE), EPOLLOUT);
        IS(epolled(edge, fd, PATIENCE), EPOLLOUT);
        say("no room, then room");
        // All of it must be read before the next round: the room is then the same for both.
        int left = 1;
        for (int64_t end = now_ms() + PATIENCE; left && now_ms() < end; sleep_ms(1)) IS(ioctl(fd, SIOCOUTQ, &left), 0);
        IS(left, 0);
        while (epolled(edge, fd, 50)) {}
    }
    peer_ends();
}
