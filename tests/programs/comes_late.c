// One end speaks past anything preloaded for so long that the other has nobody to expect, and then through the C library: in order, with the cork that was set meanwhile, from a thread that was in the
// middle of a call, from a handler, and across a fork. Under the shim both ends move into rings then.
#include "late.h"
#include <sys/time.h>

static int pipe_ends[2];
static int handled;

// Speaks on a connection of its own, in the middle of a call on another.
static void on_signal(int number) {
    (void)number;
    int saved = errno;
    uint8_t byte = 77;
    if (write(pipe_ends[1], &byte, 1) == 1) handled++;
    errno = saved;
}

static void *keep_signalling(void *thread) {
    for (int i = 0; i < 50; i++) {
        sleep_ms(1);
        pthread_kill(*(pthread_t *)thread, SIGUSR1);
    }
    return NULL;
}

static void *reads_all(void *at) {
    // Blocked in the kernel while the other end comes.
    for (int i = 0; i < WHOLE; i++) {
        uint8_t in = 0;
        get_all(*(int *)at, &in, 1);
        IS(in, pattern((size_t)i, 1));
    }
    return NULL;
}

// Handlers interrupt the calls, and make calls of the same kind on another such connection: another thread's signals, or a timer's.
static void between_handlers(int listener, const struct sockaddr_in *at, int number, pthread_t *storm) {
    int fd;
    pid_t child = late_client(listener, at, &fd);
    int idle = connect_to(at), other = accept_from(listener);
    pipe_ends[0] = idle, pipe_ends[1] = other, handled = 0;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(number, &action, NULL);
    struct timeval often = {.tv_usec = storm ? 0 : 1000};
    pthread_t me = pthread_self();
    if (storm) IS(pthread_create(storm, NULL, keep_signalling, &me), 0);
    IS(setitimer(ITIMER_REAL, &(struct itimerval){often, often}, NULL), 0);
    answers(fd, 0, WHOLE);
    if (storm) IS(pthread_join(*storm, NULL), 0);
    IS(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL), 0);
    IS(ended(child), 0);
    signal(number, SIG_IGN);
    for (int i = 0; i < handled; i++) {
        uint8_t byte = 0;
        get_all(idle, &byte, 1);
        IS(byte, 77);
    }
    close(fd);
    close(idle);
    close(other);
}

int main(void) {
    struct sockaddr_in at;
    int listener = listen_on(&at), fd;
    pid_t child = late_client(listener, &at, &fd);
    answers(fd, 0, WHOLE);
    IS(ended(child), 0);
    close(fd);
    say("came late");

    // A cork that was set while nobody was there is the program's still, and keeps nothing back for long.
    child = late_client(listener, &at, &fd);
    answers(fd, 0, LONG / 2);
    int on = 1;
    IS(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on), 0);
    for (int i = LONG / 2; i < WHOLE; i++) {
        answers(fd, i, 1);
        if (i < LONG) {
            on = 0;
            IS(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on), 0);
            on = 1;
            IS(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on), 0);
        } else if (i == LONG) {
            on = 0;
            IS(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on), 0);
        }
    }
    IS(getsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, &(socklen_t){sizeof on}), 0);
    IS(on, 0);
    IS(ended(child), 0);
    close(fd);
    say("with a cork");

    // While the process has one thread.
    between_handlers(listener, &at, SIGALRM, NULL);
    say("between a timer's handlers");

    // One thread is always in a receive, another sends.
    child = late_client(listener, &at, &fd);
    pthread_t reader;
    IS(pthread_create(&reader, NULL, reads_all, &fd), 0);
    for (int i = 0; i < WHOLE; i++) {
        uint8_t out = pattern((size_t)i, 2);
        put_all(fd, &out, 1);
    }
    IS(pthread_join(reader, NULL), 0);
    IS(ended(child), 0);
    close(fd);
    say("beside a sleeping receive");

    pthread_t storm;
    between_handlers(listener, &at, SIGUSR1, &storm);
    say("between handlers");

    // The parent has spoken for long without being heard of; its child goes on when the other end comes, and then the parent again.
    child = late_client(listener, &at, &fd);
    answers(fd, 0, LONG - 100);
    pid_t heir = fork();
    CHECK(heir >= 0);
    if (heir == 0) {
        answers(fd, LONG - 100, 1800);
        exit(0);
    }
    IS(ended(heir), 0);
    answers(fd, LONG + 1700, WHOLE - LONG - 1700);
    IS(ended(child), 0);
    close(fd);
    say("across a fork");
}
