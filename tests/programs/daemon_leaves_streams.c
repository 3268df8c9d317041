// daemon(3) with a connection as its standard streams, as inetd's children have it: all that was written before is read, and
// then the end of file, while the daemon lives on.
#include "check.h"

static int lives[2];

static void peer(int fd) {
    uint8_t text[7];
    get_all(fd, text, 7);
    CHECK(!memcmp(text, "before:", 7));
    hear();
    get_pattern(fd, 50000, 1);
    IS(recv(fd, text, 1, 0), 0);
}

int main(void) {
    int out = dup(1), err = dup(2), status;
    for (int unread = 0; unread < 2; unread++) {
        int fd = with_peer(peer);
        IS(pipe(lives), 0);
        pid_t child = fork();
        if (child == 0) {
            dup2(fd, 0), dup2(fd, 1), dup2(fd, 2), close(fd), close(side);
            CHECK(write(1, "before:", 7) == 7);
            put_pattern(unread ? 0 : 2, 50000, 1);
            if (daemon(0, 0) != 0) _exit(8);
            // Until it is told.
            close(lives[1]);
            char end;
            if (read(lives[0], &end, 1) != 0) _exit(9);
            _exit(0);
        }
        IS(close(fd), 0);
        IS(waitpid(child, &status, 0), child);
        IS(status, 0);
        tell();
        peer_ends();
        // The daemon has it, too, until here.
        IS(close(lives[1]), 0);
        IS(close(lives[0]), 0);
        say("all was read, and the end");
    }
    (void)out, (void)err;
}
