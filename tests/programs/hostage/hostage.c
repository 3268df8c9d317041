// One end of a connection whose shared memory somebody spoils at a chosen moment: `hostage reads|sleeps|polls|urgent`. Says how the call ended, and whether the
// processor was used for nothing meanwhile.
#include "check.h"
#include "raw.h"
#include <sys/syscall.h>

static void quiet_peer(int fd) {
    for (int i = 0; i < 40; i++) put_pattern(fd, 16, i), get_pattern(fd, 16, i), sleep_ms(3);
    hear();
    // Past anything that is preloaded: urgent data among a ring's wake-ups, and a byte behind it.
    IS(raw_call(SYS_sendto, fd, (long)"!", 1, MSG_OOB, 0), 1);
    IS(raw_call(SYS_write, fd, (long)"!", 1, 0, 0), 1);
    hear();
}

static void wait_for_signal(const char *text) {
    sigset_t usr1;
    int got;
    sigemptyset(&usr1), sigaddset(&usr1, SIGUSR1);
    IS(sigprocmask(SIG_BLOCK, &usr1, NULL), 0);
    say("%s", text);
    IS(sigwait(&usr1, &got), 0);
}

int main(int argc, char **argv) {
    enum { LIMIT = 2000 };
    static char buffer[300000];
    CHECK(argc == 2);
    const char *what = argv[1];
    int fd = with_peer(quiet_peer);
    for (int i = 0; i < 40; i++) get_pattern(fd, 16, i), put_pattern(fd, 16, i);
    IS(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = LIMIT / 1000}, sizeof(struct timeval)), 0);
    wait_for_signal("ready");
    if (!strcmp(what, "urgent")) tell();
    int64_t used = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
    say("begins");
    ssize_t n = !strcmp(what, "polls") ? polled(fd, POLLIN, LIMIT) : recv(fd, buffer, sizeof buffer, 0);
    int error = errno;
    used = clock_ms(CLOCK_PROCESS_CPUTIME_ID) - used;
    say("%s: %s, %s", what, n > 0 ? "something came" : n == 0 ? "nothing came" : strerror(error), used > LIMIT / 4 ? "awake all the time" : "asleep");
    wait_for_signal("seen?");
    _exit(0);
}
