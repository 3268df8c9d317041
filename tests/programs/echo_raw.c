// Not a test: echoes COUNT bytes on descriptor FD and exits; also linked statically, out of reach of anything preloaded.
// With "@" before FD, the descriptor to echo on is received over the unix socket FD.
#include "check.h"

int main(int argc, char **argv) {
    CHECK(argc == 3);
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
