// splice out of a connection that the other end has reset: what came before is moved, then the reset is told, once, and not
// taken for the end of the stream.
#include "check.h"

static void peer(int fd) {
    struct linger at_once = {.l_onoff = 1};
    hear();
    put_pattern(fd, 100, 1);
    IS(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    hear();
    IS(close(fd), 0);
    tell();
}

static void ends(int fd, int p[2], bool unread) {
    uint8_t text[100];
    tell();
    if (!unread) get_pattern(fd, 100, 1);
    tell();
    hear();
    CHECK(polled(fd, POLLIN, PATIENCE) & POLLHUP);
    if (unread) {
        IS(splice(fd, NULL, p[1], NULL, 200, 0), 100);
        IS(read(p[0], text, 100), 100);
        same(text, 0, 100, 1);
    }
    FAILS(splice(fd, NULL, p[1], NULL, 200, 0), ECONNRESET);
    IS(splice(fd, NULL, p[1], NULL, 200, 0), 0);
    say("reset");
}

int main(void) {
    for (int way = 0; way < 4; way++) {
        int fd = with_peer(peer), p[2];
        IS(pipe2(p, way & 1 ? O_NONBLOCK : 0), 0);
        IS(fcntl(fd, F_SETFL, way & 1 ? O_NONBLOCK : 0), 0);
        ends(fd, p, way & 2);
        IS(close(fd), 0);
        close(p[0]), close(p[1]);
        peer_ends();
    }
}
