// Where each system call takes long (under a tracer), a wait on a set for one event at most ends in time all the same, and tells what there is.
#include "check.h"
#include <sys/ptrace.h>

enum { WAITS = 10, SIZE = 10, STOP_US = 300 };

static void peer(int fd) {
    for (int i = 0; i < WAITS; i++) hear(), put_pattern(fd, SIZE, i);
}

static int told(int set, int ms) {
    struct epoll_event event;
    return epoll_wait(set, &event, 1, ms);
}

static void waits(void) {
    int fd = with_peer(peer), set = epoll_create1(0);
    IS(epoll_add(set, fd, EPOLLIN), 0);
    for (int i = 0; i < WAITS; i++) {
        IS(told(set, 20), 0);
        tell();
        IS(told(set, PATIENCE), 1);
        get_pattern(fd, SIZE, i);
    }
    say("told in time");
    close(fd);
    peer_ends();
}

int main(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        IS(ptrace(PTRACE_TRACEME, 0, NULL, NULL), 0);
        raise(SIGSTOP);
        waits();
        fflush(NULL);
        _exit(0);
    }
    int status, deliver = 0;
    IS(waitpid(child, &status, 0), child);
    IS(ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL), 0);
    for (;;) {
        IS(ptrace(PTRACE_SYSCALL, child, NULL, deliver), 0);
        IS(waitpid(child, &status, 0), child);
        if (WIFEXITED(status)) break;
        CHECK(WIFSTOPPED(status));
        bool call = WSTOPSIG(status) == (SIGTRAP | 0x80);
        deliver = call ? 0 : WSTOPSIG(status);
        if (call) usleep(STOP_US);
    }
    IS(WEXITSTATUS(status), 0);
}
