// A writer that waits for room, and is interrupted a thousand times a second, hears that its bytes go another way now.
#include "check.h"

enum { LENGTH = 3000000 };

static void nothing(int signal) { (void)signal; }

static void peer(int fd) {
    struct sigaction restart = {.sa_handler = nothing, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {0};
    IS(sigaction(SIGALRM, &restart, NULL), 0);
    tell();
    IS(setitimer(ITIMER_REAL, &often, NULL), 0);
    put_pattern(fd, LENGTH, 1);
    IS(setitimer(ITIMER_REAL, &never, NULL), 0);
}

int main(void) {
    int fd = with_peer(peer), sides[2];
    IS(socketpair(AF_UNIX, SOCK_STREAM, 0, sides), 0);
    hear();
    sleep_ms(5);
    pass(sides[0], fd);
    get_pattern(fd, LENGTH, 1);
    say("all of it came");
    peer_ends();
}
