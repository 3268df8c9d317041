// mlockall locks what is the program's, no more: it succeeds within a limit that holds the program, and takes no gigabyte where there is none.
#include <sys/syscall.h>

#include "check.h"

enum { LIMIT = 8 << 20, BLOCK = 256 << 10 };

static long field(const char *name) {
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file);
    long kib = -1;
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name))) kib = strtol(line + strlen(name) + 1, NULL, 10);
    fclose(file);
    return kib;
}

static void asks(int fd) { warm_up(fd, true); }

// As languages do that make their system calls themselves.
static bool by_number;

static void lock(int flags) {
    char *block = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(block != MAP_FAILED);
    IS(by_number ? syscall(SYS_mlockall, flags) : mlockall(flags), 0);
    CHECK(field("VmLck:") >= BLOCK / 1024);
    CHECK(field("VmLck:") < LIMIT / 1024);
    unsigned char resident[BLOCK / 4096];
    IS(mincore(block, BLOCK, resident), 0);
    if (!(flags & MCL_ONFAULT))
        for (int i = 0; i < BLOCK / 4096; i++) CHECK(resident[i] & 1);
    long before = field("VmLck:");
    char *more = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(more != MAP_FAILED);
    CHECK((field("VmLck:") >= before + BLOCK / 1024) == ((flags & MCL_FUTURE) != 0));
    IS(munlockall(), 0);
    IS(field("VmLck:"), 0);
    IS(munmap(block, BLOCK), 0);
    IS(munmap(more, BLOCK), 0);
}

int main(void) {
    int fd = with_peer(asks);
    struct rlimit limit;
    IS(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    if (limit.rlim_max > LIMIT) limit.rlim_max = LIMIT;
    limit.rlim_cur = limit.rlim_max;
    IS(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    FAILS(mlockall(0), EINVAL);
    FAILS(mlockall(1 << 20), EINVAL);
    lock(MCL_CURRENT);
    by_number = true;
    lock(MCL_CURRENT);
    lock(MCL_CURRENT | MCL_FUTURE);
    by_number = false;
    lock(MCL_CURRENT | MCL_FUTURE);
    lock(MCL_CURRENT | MCL_ONFAULT);
    // Not accessible yet, as the C library's reserves.
    char *reserve = mmap(NULL, BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(reserve != MAP_FAILED);
    IS(mlockall(MCL_CURRENT | MCL_FUTURE), 0);
    IS(mprotect(reserve, BLOCK, PROT_READ | PROT_WRITE), 0);
    unsigned char resident[BLOCK / 4096];
    IS(mincore(reserve, BLOCK, resident), 0);
    for (int i = 0; i < BLOCK / 4096; i++) CHECK(resident[i] & 1);
    lock(MCL_CURRENT);
    if (geteuid() == 0) IS(setresuid(65534, 65534, 65534), 0);
    lock(MCL_CURRENT | MCL_FUTURE);
    warm_up(fd, false);
    limit.rlim_cur = 4096;
    IS(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    FAILS(mlockall(MCL_CURRENT), ENOMEM);
    limit.rlim_cur = 0;
    IS(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    FAILS(mlockall(MCL_CURRENT), EPERM);
    peer_ends();
    say("locked, four times");
}
