// Children that share this memory or have a copy of it, made in every way, close one end of a connection: the parent's goes on.
#include "check.h"
#include "raw.h"
#include <sys/syscall.h>
#include <sched.h>

static int ends[2];

static int child(void *unused) {
    (void)unused;
    IS(close(ends[0]), 0);
    return 0;
}

static void goes_on(const char *after) {
    for (int i = 0; i < 20; i++) put_pattern(ends[0], 300, i), get_pattern(ends[1], 300, i), put_pattern(ends[1], 300, i), get_pattern(ends[0], 300, i);
    say("goes on after %s", after);
}

int main(void) {
    static char stack[1 << 18] __attribute__((aligned(64)));
    pid_t made;
    pair_here(ends);
    // First those that leave the connection in its ring. Not even the C library sees this fork.
    if ((made = (pid_t)raw_call(SYS_clone, SIGCHLD, 0, 0, 0, 0)) == 0) {
        close(ends[0]);
        raw_call(SYS_exit_group, 0, 0, 0, 0, 0);
    }
    IS(ended(made), 0);
    goes_on("a raw fork");
    CHECK((made = clone(child, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL)) > 0);
    IS(ended(made), 0);
    goes_on("clone with shared memory");
    if ((made = vfork()) == 0) {
        close(ends[0]);
        _exit(0);
    }
    IS(ended(made), 0);
    goes_on("vfork");
    CHECK((made = clone(child, stack + sizeof stack, SIGCHLD, NULL)) > 0);
    IS(ended(made), 0);
    goes_on("clone");
    if ((made = fork()) == 0) _exit(child(NULL));
    IS(ended(made), 0);
    goes_on("fork");
    close(ends[0]), close(ends[1]);
}
