// What the kernel once reported of a connection is asked after once, and not at every event: a
// server that reads what it was told of, and never reads until nothing is left, pays no system call
// for each.
#include "check.h"
#include <sys/ptrace.h>
#include <sys/syscall.h>

enum { CONNECTIONS = 30, MESSAGES = 300, FIRST = 100, SIZE = 10 };

static struct sockaddr_in at;

static void client(int fd) {
    // One message is always on its way: the ring is seldom empty.
    put_pattern(fd, SIZE, 0);
    for (int i = 0; i < MESSAGES; i++) {
        if (i + 1 < MESSAGES) put_pattern(fd, SIZE, i + 1);
        get_pattern(fd, SIZE, i);
    }
}

static void serve(int listener) {
    int fd = accept_from(listener), set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    IS(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
    for (int i = 0; i < MESSAGES; i++) {
        // The tracer counts from here on.
        if (i == FIRST) raise(SIGUSR1);
        IS(epoll_wait(set, &event, 1, PATIENCE), 1);
        get_pattern(fd, SIZE, i);
        put_pattern(fd, SIZE, i);
    }
    raise(SIGUSR2);
    close(set), close(fd);
}

// Runs `child` to its end. How many questions it has put to the kernel between the two signals?
static int questions_of(pid_t child) {
    int status, deliver = 0, questions = 0;
    bool counts = false;
    IS(waitpid(child, &status, 0), child);
    IS(ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL), 0);
    for (;;) {
        IS(ptrace(PTRACE_SYSCALL, child, NULL, deliver), 0);
        IS(waitpid(child, &status, 0), child);
        if (WIFEXITED(status)) break;
        CHECK(WIFSTOPPED(status));
        int signal = WSTOPSIG(status);
        deliver = signal == (SIGTRAP | 0x80) || signal == SIGUSR1 || signal == SIGUSR2 ? 0 : signal;
        counts = signal == SIGUSR1 || counts && signal != SIGUSR2;
        struct __ptrace_syscall_info info;
        if (!counts || deliver || signal == SIGUSR1) continue;
        CHECK(ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info) > 0);
        questions += info.op == PTRACE_SYSCALL_INFO_ENTRY && info.entry.nr == SYS_ppoll;
    }
    IS(WEXITSTATUS(status), 0);
    return questions;
}

int main(void) {
    int listener = listen_on(&at);
    pid_t server = fork();
    CHECK(server >= 0);
    if (!server) {
        IS(ptrace(PTRACE_TRACEME, 0, NULL, NULL), 0);
        raise(SIGSTOP);
        for (int i = 0; i < CONNECTIONS; i++) serve(listener);
        exit(0);
    }
    pid_t clients = fork();
    CHECK(clients >= 0);
    if (!clients) {
        for (int i = 0; i < CONNECTIONS; i++) {
            int fd = connect_to(&at);
            client(fd);
            close(fd);
        }
        exit(0);
    }
    int questions = questions_of(server), status;
    // Where a byte over TCP wakes whoever sleeps, each such byte is asked after.
    if (questions > 3 * CONNECTIONS && !getenv("GINNEL_TOKENS")) {
        fprintf(stderr, "%d questions, %d messages\n", questions, CONNECTIONS * (MESSAGES - FIRST));
        return 1;
    }
    IS(waitpid(clients, &status, 0), clients);
    IS(status, 0);
    say("asked after once");
}
