// A long stream of nothing but sendfile, behind a cork as web servers set it, to a reader that never answers: all of it arrives in order. Under the shim it moves into a ring.
#include "check.h"
#include <sys/sendfile.h>

enum { FILE_LENGTH = 4 << 20, TIMES = 64, PIECE = 256 << 10 };

static void peer(int fd) {
    static uint64_t words[PIECE / 8 + 1];
    uint64_t taken = 0;
    for (ssize_t got;; taken += (uint64_t)got) {
        size_t within = taken % 8;
        got = recv(fd, (char *)words + within, PIECE, 0);
        CHECK(got >= 0);
        if (got == 0) break;
        for (size_t i = within != 0; i < (within + (size_t)got) / 8; i++) IS(words[i], (taken / 8 + i) % (FILE_LENGTH / 8));
        words[0] = words[(within + (size_t)got) / 8];
    }
    IS(taken, (uint64_t)FILE_LENGTH * TIMES);
}

int main(void) {
    uint64_t *words = malloc(FILE_LENGTH);
    int file = memfd_create("file", MFD_CLOEXEC), fd = with_peer_and(peer, false);
    for (uint64_t i = 0; i < FILE_LENGTH / 8; i++) words[i] = i;
    IS(write(file, words, FILE_LENGTH), FILE_LENGTH);
    int cork = 1;
    IS(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &cork, sizeof cork), 0);
    for (int i = 0; i < TIMES; i++)
        for (off_t at = 0; at < FILE_LENGTH;) CHECK(sendfile(fd, file, &at, FILE_LENGTH - (size_t)at) > 0);
    cork = 0;
    IS(getsockopt(fd, IPPROTO_TCP, TCP_CORK, &cork, &(socklen_t){sizeof cork}), 0);
    IS(cork, 1);
    cork = 0;
    IS(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &cork, sizeof cork), 0);
    IS(shutdown(fd, SHUT_WR), 0);
    say("every byte in its place");
    peer_ends();
}
