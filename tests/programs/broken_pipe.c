// Writing where nobody reads: EPIPE, and SIGPIPE unless it is not wanted.
#include "check.h"

static volatile sig_atomic_t pipes;
static void on_pipe(int sig) { (void)sig, pipes++; }

static void peer(int fd) {
    close(fd);
    tell();
}

static int broken(void) {
    int fd = with_peer(peer);
    hear();
    IS(recv(fd, (char[1]){0}, 1, 0), 0);
    // The first is answered by a reset.
    IS(send(fd, "x", 1, MSG_NOSIGNAL), 1);
    CHECK(polled(fd, POLLIN, 0) & POLLIN);
    while (!(polled(fd, POLLOUT, PATIENCE) & (POLLERR | POLLHUP))) sleep_ms(1);
    peer_ends();
    return fd;
}

int main(void) {
    int fd = broken();
    FAILS(send(fd, "x", 1, MSG_NOSIGNAL), EPIPE);
    say("EPIPE without a signal");
    struct sigaction act = {.sa_handler = on_pipe};
    IS(sigaction(SIGPIPE, &act, NULL), 0);
    FAILS(write(fd, "x", 1), EPIPE);
    IS(pipes, 1);
    FAILS(writev(fd, &(struct iovec){"x", 1}, 1), EPIPE);
    IS(pipes, 2);
    FAILS(sendmsg(fd, &(struct msghdr){.msg_iov = &(struct iovec){"x", 1}, .msg_iovlen = 1}, MSG_NOSIGNAL), EPIPE);
    IS(pipes, 2);
    say("SIGPIPE where it is wanted");
    close(fd);
    signal(SIGPIPE, SIG_DFL);
    pid_t child = fork();
    if (child == 0) {
        int ends[2];
        pair_here(ends);
        IS(shutdown(ends[0], SHUT_WR), 0);
        (void)!write(ends[0], "x", 1);
        _exit(7);
    }
    int status = ended(child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
    say("a write after SHUT_WR is deadly");
}
