// A child does all the talking on its parent's connection, and ends; the parent, which has not used it since the fork, sleeps elsewhere. Then the other end hands its
// socket to stdio: what the child sent last must come to it by the kernel, and only the parent is left to see to that.
#include "check.h"

enum { LAST = 20000 };

static void peer(int fd) {
    get_pattern(fd, 100, 0), put_pattern(fd, 100, 0);
    hear();
    for (int i = 0; i < 200; i++) get_pattern(fd, 100, i), put_pattern(fd, 100, i);
    hear();
    sleep_ms(300);
    IS(dprintf(fd, "%s", "x"), 1);
    get_pattern(fd, LAST, 7);
    tell();
}

int main(void) {
    int fd = with_peer_and(peer, false);
    put_pattern(fd, 100, 0), get_pattern(fd, 100, 0);
    pid_t child = fork();
    if (child == 0) {
        tell();
        for (int i = 0; i < 200; i++) put_pattern(fd, 100, i), get_pattern(fd, 100, i), i % 8 || usleep(300);
        put_pattern(fd, LAST, 7);
        tell();
        _exit(0);
    }
    IS(ended(child), 0);
    hear();
    char x = 0;
    IS(read(fd, &x, 1), 1);
    CHECK(x == 'x');
    peer_ends();
    say("the child's last bytes arrived");
}
