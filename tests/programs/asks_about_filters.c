// A program that only asks whether the kernel knows seccomp's filters, as libseccomp and QEMU do: with a filter that is nowhere, for
// which it hears EFAULT. It is not confined, and goes on as before.
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "check.h"

static void ask(void) {
    uint32_t action = SECCOMP_RET_ALLOW;
    IS(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action), 0);
    FAILS(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL), EFAULT);
    FAILS(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, NULL), EFAULT);
    FAILS(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL), EFAULT);
    IS(prctl(PR_GET_SECCOMP), 0);
}

static void peer(int fd) {
    ask();
    for (int i = 0; i < 20; i++) get_pattern(fd, 400, i), put_pattern(fd, 400, i);
}

int main(void) {
    ask();
    int fd = with_peer(peer);
    ask();
    for (int i = 0; i < 20; i++) put_pattern(fd, 400, i), get_pattern(fd, 400, i);
    peer_ends();
    say("it has only asked");
}
