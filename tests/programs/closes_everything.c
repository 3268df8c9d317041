// closefrom, close_range and close over everything: the other end sees the end of file, and connections made afterwards work.
#include "check.h"
#include <sys/stat.h>

static void peer(int fd) { IS(recv(fd, (char[1]){0}, 1, 0), 0); }

// As programs did before there was closefrom: up to the limit, which may be anything.
static void close_up_to_the_limit(void) {
    struct rlimit limit;
    IS(getrlimit(RLIMIT_NOFILE, &limit), 0);
    int end = limit.rlim_cur < 1 << 20 ? (int)limit.rlim_cur : 1 << 20;
    for (int fd = 3; fd < end; fd++) CHECK(close(fd) == 0 || errno == EBADF);
}

// What is listed may belong to a library, which then says that there is no such descriptor.
static void close_what_is_listed(void) {
    DIR *dir = opendir("/proc/self/fd");
    CHECK(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        int fd = atoi(entry->d_name);
        if (fd > 2 && fd != dirfd(dir)) CHECK(close(fd) == 0 || errno == EBADF);
    }
    IS(closedir(dir), 0);
}

int main(void) {
    // Whoever looks for open numbers finds those that were opened here.
    for (int fd = 1000; fd < 20000; fd++) {
        struct stat stat;
        FAILS(fcntl(fd, F_GETFD), EBADF);
        FAILS(fstat(fd, &stat), EBADF);
    }
    for (int i = 0; i < 5; i++) {
        int fd = with_peer(peer), ends[2];
        FAILS(close_range(9, 3, 0), EINVAL);
        if (i == 2) {
            IS(close_range((unsigned)fd, (unsigned)fd, CLOSE_RANGE_CLOEXEC), 0);
            IS(fcntl(fd, F_GETFD), FD_CLOEXEC);
            put_pattern(fd, 0, 0);
        }
        if (i == 0) closefrom(3);
        else if (i == 3) close_up_to_the_limit();
        else if (i == 4) close_what_is_listed();
        else IS(close_range(3, ~0u, 0), 0);
        FAILS(fcntl(fd, F_GETFD), EBADF);
        FAILS(send(fd, "x", 1, MSG_NOSIGNAL), EBADF);
        IS(ended(other), 0);
        pair_here(ends);
        for (int j = 0; j < 20; j++) put_pattern(ends[0], 5000, j), get_pattern(ends[1], 5000, j);
        close(ends[0]), close(ends[1]);
        say("closed, and going on");
    }
}
