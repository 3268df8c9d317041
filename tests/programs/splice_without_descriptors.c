// splice out of a socket by a program that has as many descriptors as it may: splice takes none, whatever pipe it goes into.
#include "check.h"

enum { ALL = 20000 };

static void peer(int fd) {
    put_pattern(fd, ALL, 1);
    hear();
}

int main(void) {
    for (int packets = 0; packets < 2; packets++) {
        int fd = with_peer(peer), p[2];
        IS(pipe2(p, packets ? O_DIRECT : 0), 0);
        struct rlimit before, none;
        IS(getrlimit(RLIMIT_NOFILE, &before), 0);
        none = before, none.rlim_cur = 3;
        IS(setrlimit(RLIMIT_NOFILE, &none), 0);
        FAILS(dup(0), EMFILE);
        for (size_t got = 0; got < ALL;) {
            uint8_t text[3000];
            ssize_t moved = splice(fd, NULL, p[1], NULL, sizeof text, 0);
            CHECK(moved > 0);
            for (ssize_t left = moved; left > 0;) {
                ssize_t n = read(p[0], text, (size_t)left);
                CHECK(n > 0);
                same(text, got, (size_t)n, 1);
                got += (size_t)n, left -= n;
            }
        }
        IS(setrlimit(RLIMIT_NOFILE, &before), 0);
        say("all of it");
        tell();
        IS(close(fd), 0);
        close(p[0]), close(p[1]);
        peer_ends();
    }
}
