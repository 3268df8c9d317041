// SHUT_WR ends one direction after its last byte; the other goes on, in either order.
#include "check.h"

enum { MUCH = 300000 };

static void peer(int fd) {
    put_pattern(fd, MUCH, 1);
    IS(shutdown(fd, SHUT_WR), 0);
    errno = 0;
    FAILS(send(fd, "x", 1, MSG_NOSIGNAL), EPIPE);
    get_pattern(fd, MUCH, 2);
    IS(recv(fd, (char[1]){0}, 1, 0), 0);
    CHECK((polled(fd, POLLIN | POLLOUT | POLLRDHUP, 0) & (POLLIN | POLLRDHUP | POLLHUP)) == (POLLIN | POLLRDHUP | POLLHUP));
    close(fd);
}

int main(void) {
    char c;
    int fd = with_peer(peer);
    get_pattern(fd, MUCH, 1);
    IS(recv(fd, &c, 1, 0), 0);
    IS(recv(fd, &c, 1, MSG_DONTWAIT | MSG_PEEK), 0);
    CHECK(polled(fd, POLLIN | POLLRDHUP, 0) == (POLLIN | POLLRDHUP));
    say("end of file after %d bytes, and no hang-up yet", MUCH);
    put_pattern(fd, MUCH, 2);
    IS(shutdown(fd, SHUT_WR), 0);
    peer_ends();
    say("the other direction carried %d bytes", MUCH);
    IS(close(fd), 0);
}
