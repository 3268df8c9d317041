// Linux lets an end read on that has called shutdown(SHUT_RD), and takes what is sent to it. When that end closes, having read
// all, the other one sees the end of the stream and no reset.
#include "check.h"

static void peer(int fd) {
    IS(shutdown(fd, SHUT_RD), 0);
    tell();
    hear();
    uint8_t text[1000];
    for (size_t got = 0; got < 1000;) {
        ssize_t n = recv(fd, text, sizeof text, 0);
        CHECK(n >= 0);
        if (n == 0) sleep_ms(1);
        same(text, got, (size_t)n, 1);
        got += (size_t)n;
    }
    hear();
    IS(close(fd), 0);
    tell();
}

int main(void) {
    int fd = with_peer(peer), set = epoll_create1(0);
    char end;
    hear();
    put_pattern(fd, 1000, 1);
    tell();
    IS(epoll_add(set, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET), 0);
    sleep_ms(50);
    tell();
    hear();
    sleep_ms(50);
    uint32_t seen = epolled(set, fd, PATIENCE);
    say("told %x", seen);
    IS(recv(fd, &end, 1, 0), 0);
    int error; socklen_t n = sizeof error;
    IS(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n), 0);
    IS(error, 0);
    say("the end");
    IS(close(fd), 0);
    peer_ends();
}
