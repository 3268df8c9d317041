// A program limits its own memory while a connection of it is carried: it has as much as it asked for, reads back what it set, and cannot have more.
#include "check.h"

#include <sys/mman.h>
#include <sys/resource.h>

enum { LENGTH = 40000 };
static const size_t MB = 1 << 20;

static void peer(int fd) {
    put_pattern(fd, LENGTH, 7);
    get_pattern(fd, LENGTH, 8);
}

static bool has(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at != MAP_FAILED) munmap(at, bytes);
    return at != MAP_FAILED;
}

int main(void) {
    int fd = with_peer(peer);
    struct rlimit limit, before;
    IS(getrlimit(RLIMIT_AS, &before), 0);
    limit = (struct rlimit){200 * MB, before.rlim_max};
    IS(setrlimit(RLIMIT_AS, &limit), 0);
    IS(getrlimit(RLIMIT_AS, &limit), 0);
    CHECK(limit.rlim_cur == 200 * MB);
    CHECK(limit.rlim_max == before.rlim_max);
    CHECK(has(100 * MB));
    CHECK(!has(400 * MB));
    struct rlimit lower = {150 * MB, 180 * MB};
    IS(prlimit(0, RLIMIT_AS, &lower, &limit), 0);
    CHECK(limit.rlim_cur == 200 * MB);
    IS(prlimit(getpid(), RLIMIT_AS, NULL, &limit), 0);
    CHECK(limit.rlim_cur == 150 * MB && limit.rlim_max == 180 * MB);
    IS(setrlimit(RLIMIT_AS, &limit), 0);
    IS(setrlimit(RLIMIT_DATA, &(struct rlimit){100 * MB, 100 * MB}), 0);
    CHECK(has(60 * MB));
    get_pattern(fd, LENGTH, 7);
    put_pattern(fd, LENGTH, 8);
    peer_ends();
    say("within its own limits");
}
