// The thread that the program began with leaves (pthread_exit), and another goes on with a connection. The process ends with that one, and as by exit(0).
#include "check.h"

static int listener;

static void by_exit(void) { say("ended as by exit"); }

static void *works(void *none) {
    sleep_ms(50);
    int fd = accept_from(listener);
    warm_up(fd, false);
    sleep_ms(100);
    say("the other thread is through");
    return none;
}

int main(void) {
    struct sockaddr_in at;
    listener = listen_on(&at);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        IS(atexit(by_exit), 0);
        pthread_t other;
        IS(pthread_create(&other, NULL, works, NULL), 0);
        pthread_exit(NULL);
    }
    int fd = connect_to(&at), status;
    warm_up(fd, true);
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    char byte;
    IS(recv(fd, &byte, 1, 0), 0);
    say("its connection has ended, too");
}
