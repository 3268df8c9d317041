// A process of one thread that is to be cancelled, by itself: so it is at its next receive, also after thousands of calls on a connection that nobody carries.
#include "check.h"
#include "raw.h"
#include <sys/syscall.h>

enum { CALLS = 5000 };

static int ends[2], other;

static void is_cancelled(void *none) {
    (void)none;
    say("cancelled in its receive");
    // A connection that is carried, as in every program here.
    struct sockaddr_in at;
    int listener = listen_on(&at);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        warm_up(connect_to(&at), true);
        _exit(0);
    }
    warm_up(accept_from(listener), false);
    int status;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
}

int main(void) {
    struct sockaddr_in at;
    int listener = listen_on(&at);
    other = (int)raw_call(SYS_socket, AF_INET, SOCK_STREAM, 0, 0, 0);
    CHECK(other >= 0 && raw_call(SYS_connect, other, (long)&at, sizeof at, 0, 0) == 0);
    ends[0] = accept_from(listener);
    char byte = 'x';
    for (int i = 0; i < CALLS; i++) {
        IS(raw_call(SYS_write, other, (long)&byte, 1, 0, 0), 1);
        IS(recv(ends[0], &byte, 1, 0), 1);
        IS(send(ends[0], &byte, 1, 0), 1);
        IS(raw_call(SYS_read, other, (long)&byte, 1, 0, 0), 1);
        if (i % 100 == 0) FAILS(recv(ends[0], &byte, 1, MSG_DONTWAIT), EAGAIN);
    }
    IS(raw_call(SYS_write, other, (long)&byte, 1, 0, 0), 1);
    pthread_cleanup_push(is_cancelled, NULL);
    IS(pthread_cancel(pthread_self()), 0);
    recv(ends[0], &byte, 1, 0);
    say("got through");
    pthread_cleanup_pop(0);
    return 1;
}
