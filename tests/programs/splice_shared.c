// splice from a pipe into a socket that does not block and that a child holds too: the parent's, then the child's; then the
// child has the socket block, and the parent's go on.
#include "check.h"

enum { TIMES = 200, PIECE = 4000 };

static void peer(int fd) {
    for (int i = 0; i < 2 * TIMES; i++) {
        get_pattern(fd, PIECE, i);
        put_pattern(fd, 1, i);
    }
    get_pattern(fd, PIECE, 1);
    put_pattern(fd, 1, 1);
    char end;
    IS(recv(fd, &end, 1, 0), 0);
}

// One piece from the pipe, and the answer to it.
static void one(int fd, const int p[2], int salt) {
    uint8_t text[PIECE];
    fill(text, 0, PIECE, salt);
    IS(write(p[1], text, PIECE), PIECE);
    for (size_t at = 0; at < PIECE;) {
        ssize_t put = splice(p[0], NULL, fd, NULL, PIECE - at, SPLICE_F_NONBLOCK);
        CHECK(put > 0 || errno == EAGAIN);
        if (put > 0) at += (size_t)put;
    }
    when_readable(fd);
    get_pattern(fd, 1, salt);
}

int main(void) {
    int fd = with_peer(peer), p[2], turn[2], status;
    IS(pipe2(p, O_NONBLOCK), 0);
    IS(pipe(turn), 0);
    nonblocking(fd);
    pid_t child = fork();
    if (child == 0) {
        char go;
        IS(close(turn[1]), 0);
        IS(read(turn[0], &go, 1), 1);
        for (int i = TIMES; i < 2 * TIMES; i++) one(fd, p, i);
        IS(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK), 0);
        _exit(0);
    }
    for (int i = 0; i < TIMES; i++) one(fd, p, i);
    say("the parent's");
    IS(write(turn[1], "", 1), 1);
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    say("the child's");
    one(fd, p, 1);
    say("where it blocks");
    IS(shutdown(fd, SHUT_WR), 0);
    peer_ends();
}
