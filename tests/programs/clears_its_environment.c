// As nginx does with that of its workers: the memory of the environment is used for something else. What the user set stays as it was at the start.
#include "check.h"

static void peer(int fd) { put_pattern(fd, 5000, 1); }

int main(void) {
    for (char **variable = environ; *variable; variable++) memset(*variable, 0, strlen(*variable));
    IS(clearenv(), 0);
    IS(chdir("/"), 0);
    int fd = with_peer(peer);
    get_pattern(fd, 5000, 1);
    peer_ends();
    say("without an environment");
}
