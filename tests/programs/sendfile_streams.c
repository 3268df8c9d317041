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

// In memory, where the kernel does not say what of it is at hand, and on a disk, where it does.
static int file_in(bool memory) {
    uint64_t *words = malloc(FILE_LENGTH);
    FILE *on_disk = memory ? NULL : tmpfile();
    int file = memory ? memfd_create("file", MFD_CLOEXEC) : fileno(on_disk);
    for (uint64_t i = 0; i < FILE_LENGTH / 8; i++) words[i] = i;
    IS(write(file, words, FILE_LENGTH), FILE_LENGTH);
    free(words);
    return file;
}

int main(void) {
    int files[] = {file_in(true), file_in(false)}, fd = with_peer_and(peer, false);
    int cork = 1;
    IS(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &cork, sizeof cork), 0);
    for (int i = 0; i < TIMES; i++)
        for (off_t at = 0; at < FILE_LENGTH;) {
            // Some of it from the file's own position, which moves on; some in pieces that end anywhere in a ring.
            bool own = i % 8 >= 6;
            size_t left = FILE_LENGTH - (size_t)at, most = i % 3 == 0 && left > 70001 ? 70001 : left;
            if (own) IS(lseek(files[i % 2], at, SEEK_SET), at);
            ssize_t sent = sendfile(fd, files[i % 2], own ? NULL : &at, most);
            CHECK(sent > 0);
            if (own) at += sent;
            if (own) IS(lseek(files[i % 2], 0, SEEK_CUR), at);
        }
    cork = 0;
    IS(getsockopt(fd, IPPROTO_TCP, TCP_CORK, &cork, &(socklen_t){sizeof cork}), 0);
    IS(cork, 1);
    cork = 0;
    IS(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &cork, sizeof cork), 0);
    IS(shutdown(fd, SHUT_WR), 0);
    say("every byte in its place");
    peer_ends();
}
