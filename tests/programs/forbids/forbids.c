// Forbids system calls and becomes a program that is to do without them, as a service manager or a container's runtime does: `forbids CALL,CALL… PROGRAM ARGS…`. Each is
// answered as it is there: EPERM, or ENOSYS where the C library then tries an older call.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include "check.h"

static const struct {
    const char *name;
    uint32_t number, error;
} CALLS[] = {
    {"membarrier", SYS_membarrier, EPERM},
    {"mknodat", SYS_mknodat, EPERM},
    {"memfd_create", SYS_memfd_create, EPERM},
    {"process_vm_readv", SYS_process_vm_readv, EPERM},
    {"process_vm_writev", SYS_process_vm_writev, EPERM},
    {"pidfd_getfd", SYS_pidfd_getfd, EPERM},
    {"close_range", SYS_close_range, ENOSYS},
    {"epoll_pwait2", SYS_epoll_pwait2, ENOSYS},
    {"clone3", SYS_clone3, ENOSYS},
    // Only for threads: their clone is known by a flag.
    {"threads", SYS_clone, EPERM},
};
enum { KNOWN = sizeof CALLS / sizeof *CALLS, NUMBER = offsetof(struct seccomp_data, nr), FLAGS = offsetof(struct seccomp_data, args[0]) };

static struct sock_filter filter[KNOWN * 5 + 1];
static unsigned short steps;

static void forbid(int call) {
    bool threads = !strcmp(CALLS[call].name, "threads");
    filter[steps++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, NUMBER);
    filter[steps++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CALLS[call].number, 0, threads ? 3 : 1);
    if (threads) {
        filter[steps++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FLAGS);
        filter[steps++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1);
    }
    filter[steps++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | CALLS[call].error);
}

int main(int argc, char **argv) {
    CHECK(argc >= 3);
    for (char *name = strtok(argv[1], ","); name; name = strtok(NULL, ",")) {
        int call = 0;
        while (call < KNOWN && strcmp(name, CALLS[call].name)) call++;
        CHECK(call < KNOWN && steps < KNOWN * 5);
        forbid(call);
    }
    filter[steps++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    IS(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    IS(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &(struct sock_fprog){steps, filter}), 0);
    execvp(argv[2], argv + 2);
    CHECK(!"the program is there");
}
