// Write, then exit without closing: every byte arrives, then end-of-file. By exit, _exit and return to a shell's child.
#include "check.h"

static int how;
static void peer(int fd) {
    put_pattern(fd, 1000000, how);
    if (how == 0) exit(0);
    if (how == 1) _exit(0);
    kill(getpid(), SIGTERM);
}

int main(void) {
    for (how = 0; how < 3; how++) {
        int fd = with_peer(peer);
        if (how == 1) sleep_ms(100);
        get_pattern(fd, 1000000, how);
        IS(recv(fd, (char[1]){0}, 1, 0), 0);
        IS(polled(fd, POLLIN | POLLRDHUP, 0), POLLIN | POLLRDHUP);
        int status = ended(other);
        CHECK(how < 2 ? status == 0 : WTERMSIG(status) == SIGTERM);
        close(fd);
        say("all arrived, then end of file");
    }
}
