// FIONREAD counts what is unread wherever it lies: in a ring, in the kernel once the ring was left with bytes in it, and in both.
#include "check.h"

static void peer(int fd) {
    for (int i = 0; i < 4; i++) {
        hear();
        put_pattern(fd, 300, i);
        tell();
    }
}

static void queued(int fd, int expected) { IS(queue_size(fd, FIONREAD, expected), expected); }

static void sends(void) { tell(), hear(); }

int main(void) {
    uint8_t text[1200];
    for (int unread = 0; unread < 300; unread += 100) {
        int fd = with_peer(peer);
        sends();
        queued(fd, 300);
        IS(recv(fd, text, (size_t)(300 - unread), MSG_WAITALL), 300 - unread);
        queued(fd, unread);
        sends();
        queued(fd, unread + 300);
        // With signals of its own the socket is the kernel's from now on (no owner is set: nobody gets any).
        IS(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC), 0);
        queued(fd, unread + 300);
        sends();
        queued(fd, unread + 600);
        IS(recv(fd, text + 300 - unread, 400, MSG_WAITALL), 400);
        queued(fd, unread + 200);
        sends();
        queued(fd, unread + 500);
        IS(recv(fd, text + 700 - unread, (size_t)unread + 500, MSG_WAITALL), unread + 500);
        queued(fd, 0);
        for (int i = 0; i < 4; i++) same(text + 300 * i, 0, 300, i);
        peer_ends();
        close(fd);
        say("FIONREAD counts both");
    }
}
