// Not a test: echoes COUNT bytes on descriptor FD and exits; also linked statically and with musl, out of reach of anything preloaded, and passing the C library by.
// With "@" before FD, the descriptor to echo on is received over the unix socket FD. Only the last two arguments count: it may be the interpreter of a script.
#include "check.h"

#ifdef LIKE_GO
#include "raw.h"
#include <sys/syscall.h>
#define read(fd, at, n) raw_call(SYS_read, fd, (long)(at), (long)(n), 0, 0)
#define put_all(fd, at, n) CHECK(raw_call(SYS_write, fd, (long)(at), n, 0, 0) == (n))

// By this programs of Go are known: the note of their build.
static const struct {
    uint32_t name, value, kind;
    char go[4], build[4];
} note __attribute__((section(".note.go.buildid"), used, aligned(4))) = {4, 4, 4, "Go", "abc"};
#endif

int main(int argc, char **argv) {
    CHECK(argc >= 3);
    argv += argc - 3;
    bool passed = argv[1][0] == '@';
    int fd = atoi(argv[1] + passed);
    long left = atol(argv[2]);
    if (passed) fd = passed_over(fd);
    while (left > 0) {
        char text[4096];
        ssize_t n = read(fd, text, left < 4096 ? (size_t)left : 4096);
        CHECK(n > 0);
        put_all(fd, text, (size_t)n);
        left -= n;
    }
}
