// A process confines itself to read, write and exit (seccomp), as sandboxed parts of servers do, with bytes under way in both directions. It talks on; what it was not
// to do, it has not done.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include "check.h"

#define ALLOW(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void confine(bool by_number) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(read), ALLOW(write), ALLOW(exit_group),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    IS(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    if (by_number) IS(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), 0);
    else IS(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void peer(int fd) {
    put_pattern(fd, 3000, 1);  // unread when the other end confines itself
    for (int i = 0; i < 20; i++) get_pattern(fd, 400, i), put_pattern(fd, 400, i);
    get_pattern(fd, 5000, 2);
}

static void talk(bool by_number) {
    int fd = with_peer(peer);
    sleep_ms(20);
    pid_t child = fork();
    if (child == 0) {
        confine(by_number);
        uint8_t text[5000];
        for (size_t got = 0; got < 3000;) {
            ssize_t some = read(fd, text + got, 3000 - got);
            if (some <= 0) _exit(3);
            got += (size_t)some;
        }
        same(text, 0, 3000, 1);
        for (int i = 0; i < 20; i++) {
            fill(text, 0, 400, i);
            if (write(fd, text, 400) != 400) _exit(4);
            for (size_t got = 0; got < 400;) {
                ssize_t some = read(fd, text + got, 400 - got);
                if (some <= 0) _exit(5);
                got += (size_t)some;
            }
            same(text, 0, 400, i);
        }
        fill(text, 0, 5000, 2);
        if (write(fd, text, 5000) != 5000) _exit(6);
        exit(0);
    }
    IS(ended(child), 0);
    peer_ends();
}

int main(void) {
    talk(false);
    talk(true);
    say("a confined process talks on");
}
