// Handlers with SA_RESTART beside one without: a call goes on after the ones, from the first time on, and ends with EINTR after the other.
#include "check.h"

enum { WARM_UP = 60, SIZE = 900 };

static volatile sig_atomic_t restarted, ended_calls;

static void restarts(int signal) { (void)signal, restarted++; }
static void ends(int signal) { (void)signal, ended_calls++; }

static void handle(int signal, void (*how)(int), int flags) {
    struct sigaction action = {.sa_handler = how, .sa_flags = flags};
    IS(sigaction(signal, &action, NULL), 0);
}

static void ask(const struct sockaddr_in *at, pid_t server) {
    int fd = connect_to(at);
    for (int i = 0; i < WARM_UP; i++) put_pattern(fd, SIZE, i), get_pattern(fd, SIZE, i);
    for (int i = 0; i < 3; i++) {
        sleep_ms(20);
        IS(kill(server, SIGUSR1), 0);
    }
    sleep_ms(20);
    put_all(fd, "a", 1);
    char byte;
    IS(read(fd, &byte, 1), 1);
    sleep_ms(20);
    IS(kill(server, SIGUSR2), 0);
    IS(read(fd, &byte, 1), 1);
    exit(0);
}

int main(void) {
    struct sockaddr_in at;
    int listener = listen_on(&at);
    handle(SIGUSR1, restarts, SA_RESTART);
    handle(SIGUSR2, ends, 0);
    pid_t server = getpid(), peer = fork();
    if (peer == 0) ask(&at, server);
    int fd = accept_from(listener);
    for (int i = 0; i < WARM_UP; i++) get_pattern(fd, SIZE, i), put_pattern(fd, SIZE, i);
    char byte;
    IS(read(fd, &byte, 1), 1);
    CHECK(restarted > 0 && ended_calls == 0);
    put_all(fd, "b", 1);
    FAILS(read(fd, &byte, 1), EINTR);
    IS(ended_calls, 1);
    put_all(fd, "c", 1);
    IS(ended(peer), 0);
    say("restarted, and interrupted");
}
