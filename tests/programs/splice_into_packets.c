// splice out of a socket into a pipe of packets (O_DIRECT): what was spliced is no packet, and is read in as many parts as one
// likes.
#include "check.h"

enum { ALL = 20000 };

static void peer(int fd) {
    put_pattern(fd, ALL, 1);
    hear();
}

int main(void) {
    int fd = with_peer(peer), p[2];
    IS(pipe2(p, O_DIRECT), 0);
    size_t got = 0;
    for (size_t moved = 0; moved < ALL;) {
        ssize_t n = splice(fd, NULL, p[1], NULL, 3000, 0);
        CHECK(n > 0);
        moved += (size_t)n;
        while (got < moved) {
            uint8_t text[77];
            struct pollfd in = {.fd = p[0], .events = POLLIN};
            CHECK(poll(&in, 1, 1000) == 1);
            ssize_t some = read(p[0], text, sizeof text);
            CHECK(some > 0);
            same(text, got, (size_t)some, 1);
            got += (size_t)some;
        }
    }
    say("nothing of %d bytes is lost", ALL);
    tell();
    IS(close(fd), 0);
    peer_ends();
}
