// Handlers with SA_RESTART beside one without: a call goes on after the ones, from the first time on, and ends with EINTR after the other.
#include "check.h"

static volatile sig_atomic_t restarted, ended_calls;

static void restarts(int signal) { (void)signal, restarted++; }
static void ends(int signal) { (void)signal, ended_calls++; }

static void handle(int signal, void (*how)(int), int flags) {
    struct sigaction action = {.sa_handler = how, .sa_flags = flags};
    IS(sigaction(signal, &action, NULL), 0);
}

static void signals(int fd) {
    pid_t server = getppid();
    for (int i = 0; i < 3; i++) {
        sleep_ms(20);
        IS(kill(server, SIGUSR1), 0);
    }
    sleep_ms(20);
    put_all(fd, "a", 1);
    char byte;
    IS(read(fd, &byte, 1), 1);
    // The first may come before the read.
    do IS(kill(server, SIGUSR2), 0);
    while (!(polled(fd, POLLIN, 20) & POLLIN));
    IS(read(fd, &byte, 1), 1);
}

int main(void) {
    handle(SIGUSR1, restarts, SA_RESTART);
    handle(SIGUSR2, ends, 0);
    int fd = with_peer(signals);
    char byte;
    IS(read(fd, &byte, 1), 1);
    CHECK(restarted > 0 && ended_calls == 0);
    put_all(fd, "b", 1);
    FAILS(read(fd, &byte, 1), EINTR);
    CHECK(ended_calls > 0);
    handle(SIGUSR2, SIG_IGN, 0);
    put_all(fd, "c", 1);
    peer_ends();
    say("restarted, and interrupted");
}
