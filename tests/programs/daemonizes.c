// daemon(3) with a connection open: the child goes on with it.
#include "check.h"

static void peer(int fd) {
    get_pattern(fd, 1000, 1);
    warm_up(fd, true);
    IS(recv(fd, (char[1]){0}, 1, 0), 0);
}

int main(void) {
    int out = dup(1), done[2];
    IS(pipe(done), 0);
    if (fork() == 0) {
        int fd = with_peer(peer);
        put_pattern(fd, 1000, 1);
        CHECK(daemon(0, 0) == 0);
        warm_up(fd, false);
        close(fd);
        CHECK(write(done[1], "x", 1) == 1);
        exit(0);
    }
    int status;
    wait(&status);
    IS(status, 0);
    IS(read(done[0], (char[1]){0}, 1), 1);
    dup2(out, 1);
    say("the daemon has gone on");
}
