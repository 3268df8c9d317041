// A statically linked program inherits a connection: the bytes it should read are there, also those that had come before it
// was started, and its parent goes on afterwards.
#include "check.h"

enum { LENGTH = 40000 };

static void peer(int fd) {
    for (int i = 0; i < 3; i++) {
        put_pattern(fd, LENGTH, i);
        tell();
        get_pattern(fd, LENGTH, i);
        warm_up(fd, true);
    }
}

int main(int argc, char **argv) {
    char path[PATH_MAX], number[16], length[16];
    CHECK(argc == 2);
    int fd = with_peer(peer);
    snprintf(path, sizeof path, "%s/echo_raw-static", argv[1]);
    snprintf(number, sizeof number, "%d", fd), snprintf(length, sizeof length, "%d", LENGTH);
    char *args[] = {path, number, length, NULL};
    for (int i = 0; i < 3; i++) {
        pid_t child;
        if (i != 1) hear();
        if (i == 2) IS(posix_spawn(&child, path, NULL, NULL, args, environ), 0);
        else if ((child = fork()) == 0) {
            execv(path, args);
            _exit(9);
        }
        if (i == 1) hear();
        IS(ended(child), 0);
        warm_up(fd, false);
        say("echoed by a static program");
    }
    peer_ends();
}
