// Closing with data unread resets the connection, so that the sender learns of the loss.
#include "check.h"

static void peer(int fd) {
    put_pattern(fd, 5000, 1);
    tell();
    hear();
    CHECK(polled(fd, POLLIN, PATIENCE) & POLLERR);
    FAILS(recv(fd, (char[1]){0}, 1, 0), ECONNRESET);
}

int main(void) {
    int fd = with_peer(peer);
    hear();
    get_pattern(fd, 1000, 1);
    when_readable(fd);
    IS(close(fd), 0);
    tell();
    peer_ends();
    say("reset");
}
