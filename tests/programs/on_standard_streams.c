// As inetd does it: the socket is standard input and output of a program that knows no sockets (cat), by fork and by
// posix_spawn; what came before it and what comes after the half-close is whole.
#include "check.h"

static void peer(int fd) {
    uint8_t text[7];
    put_pattern(fd, 50000, 1);
    IS(shutdown(fd, SHUT_WR), 0);
    get_all(fd, text, 7);
    CHECK(!memcmp(text, "before:", 7));
    get_pattern(fd, 50000, 1);
    IS(recv(fd, text, 1, 0), 0);
}

int main(void) {
    char *args[] = {"cat", NULL};
    for (int i = 0; i < 2; i++) {
        int fd = with_peer(peer);
        pid_t child;
        put_all(fd, "before:", 7);
        if (i == 0) {
            if ((child = fork()) == 0) {
                dup2(fd, 0), dup2(fd, 1), close(fd);
                execvp("cat", args);
                _exit(9);
            }
        } else {
            posix_spawn_file_actions_t act;
            posix_spawn_file_actions_init(&act);
            posix_spawn_file_actions_adddup2(&act, fd, 0);
            posix_spawn_file_actions_adddup2(&act, fd, 1);
            posix_spawn_file_actions_addclose(&act, fd);
            IS(posix_spawnp(&child, "cat", &act, NULL, args, environ), 0);
        }
        close(fd);
        IS(ended(child), 0);
        peer_ends();
        say("cat has carried it");
    }
}
