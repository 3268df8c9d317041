// unshare and setns, which the kernel allows only where a process has one thread: the answers are those of a program that has
// one, as often as it asks, and its connections go on.
#include "check.h"

#include <sched.h>
#include <sys/syscall.h>

static void peer(int fd) {
    for (int i = 0; i < 3; i++) warm_up(fd, true);
    get_pattern(fd, 300000, 1);
    put_pattern(fd, 300000, 2);
}

static void tried(const char *what, int result) { say("%s: %s", what, result == 0 ? "done" : strerror(errno)); }

int main(void) {
    int fd = with_peer(peer), mount = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    CHECK(mount >= 0);
    tried("shared signal handlers", unshare(CLONE_SIGHAND));
    tried("mount namespace", setns(mount, CLONE_NEWNS));
    warm_up(fd, false);
    tried("user namespace", unshare(CLONE_NEWUSER));
    warm_up(fd, false);
    tried("by its number", (int)syscall(SYS_unshare, CLONE_NEWUSER | CLONE_NEWNS));
    FAILS(unshare(0x01), EINVAL);
    FAILS(setns(-1, 0), EBADF);
    warm_up(fd, false);
    put_pattern(fd, 300000, 1);
    get_pattern(fd, 300000, 2);
    peer_ends();
    // What a process in a new namespace starts, too.
    tried("process namespace", unshare(CLONE_NEWPID));
    fd = with_peer(peer);
    for (int i = 0; i < 3; i++) warm_up(fd, false);
    put_pattern(fd, 300000, 1);
    get_pattern(fd, 300000, 2);
    peer_ends();
    say("carried on");
}
