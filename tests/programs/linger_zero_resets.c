// SO_LINGER with time 0: close resets; what the other end had not read is gone.
#include "check.h"

static void peer(int fd) {
    char c;
    hear();
    CHECK(polled(fd, POLLIN | POLLRDHUP, PATIENCE) & POLLERR);
    FAILS(recv(fd, &c, 1, 0), ECONNRESET);
    IS(recv(fd, &c, 1, 0), 0);
    FAILS(send(fd, "x", 1, MSG_NOSIGNAL), EPIPE);
}

int main(void) {
    int fd = with_peer(peer);
    struct linger now = {1, 0};
    IS(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    IS(close(fd), 0);
    tell();
    peer_ends();
    say("reset");
}
