// A fork that fails leaves nothing behind: the connection goes on, and its close is the end of file that it would have been.
#include "check.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static void peer(int fd) {
    get_pattern(fd, 5000, 1), put_pattern(fd, 5000, 2);
    IS(recv(fd, (char[1]){0}, 1, 0), 0);
    tell();
}

// From here on no process can be made; threads can.
static void no_more_processes(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_VM, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    IS(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    IS(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

int main(void) {
    int fd = with_peer(peer);
    no_more_processes();
    for (int i = 0; i < 3; i++) FAILS(fork(), EAGAIN);
    put_pattern(fd, 5000, 1), get_pattern(fd, 5000, 2);
    IS(close(fd), 0);
    hear();
    say("closed after forks that failed");
    peer_ends();
}
