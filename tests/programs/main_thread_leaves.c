// The thread that the program began with leaves (pthread_exit), and another goes on with a connection. The process ends with that one, and as by exit(0). Where there is no other it ends
// with the first, but not before what that does at its end.
#include "check.h"

static int listener;

// With the room, and the signals, that a thread has.
static void by_exit(void) {
    volatile char large[1 << 20];
    for (size_t i = 0; i < sizeof large; i += 4096) large[i] = 1;
    sigset_t blocked;
    IS(pthread_sigmask(SIG_SETMASK, NULL, &blocked), 0);
    CHECK(sigismember(&blocked, SIGTERM) == 0);
    say("ended as by exit");
}

static void *works(void *none) {
    sleep_ms(50);
    int fd = accept_from(listener);
    warm_up(fd, false);
    sleep_ms(100);
    say("the work is done");
    return none;
}

static void takes_long(void *value) {
    (void)value;
    sleep_ms(300);
    say("a slow destructor is through");
}

static void leaves(bool alone) {
    IS(atexit(by_exit), 0);
    pthread_t thread;
    pthread_key_t key;
    if (alone) {
        works(NULL);
        IS(pthread_key_create(&key, takes_long), 0);
        IS(pthread_setspecific(key, &listener), 0);
    } else {
        IS(pthread_create(&thread, NULL, works, NULL), 0);
    }
    pthread_exit(NULL);
}

static void in_a_child(bool alone) {
    struct sockaddr_in at;
    listener = listen_on(&at);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) leaves(alone);
    int fd = connect_to(&at), status;
    warm_up(fd, true);
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    char byte;
    IS(recv(fd, &byte, 1, 0), 0);
    IS(close(fd), 0);
    IS(close(listener), 0);
    say("its connection has ended, too");
}

int main(void) {
    in_a_child(false);
    in_a_child(true);
}
