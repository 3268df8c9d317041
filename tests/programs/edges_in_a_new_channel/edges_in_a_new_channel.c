// An edge-triggered set whose connection leaves the segment and has a new channel there: as many bytes as
// were told of in the old one are news in the new one. SIGUSR1: send some, and wait for the edge.
#include "check.h"
#include <signal.h>

static volatile sig_atomic_t due;

static void asked(int signal) {
    (void)signal;
    due++;
}

// Both ends in this process, which needs nothing else to tell the library that there is a connection.
static void connected(int ends[2]) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    IS(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    IS(listen(listener, 1), 0);
    IS(getsockname(listener, (struct sockaddr *)&at, &length), 0);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    IS(connect(ends[0], (struct sockaddr *)&at, sizeof at), 0);
    ends[1] = accept(listener, NULL, NULL);
    CHECK(ends[1] >= 0);
    close(listener);
}

int main(void) {
    int ends[2], set = epoll_create1(0);
    uint8_t byte;
    signal(SIGUSR1, asked);
    connected(ends);
    IS(epoll_add(set, ends[1], EPOLLIN | EPOLLET), 0);
    printf("connected\n"), fflush(stdout);
    for (int done = 0; done < 4;) {
        if (done == due) {
            // Calls are steps towards a channel. What is counted below goes the other way.
            FAILS(recv(ends[1], &byte, 1, MSG_DONTWAIT), EAGAIN);
            put_pattern(ends[1], 1, 7);
            get_pattern(ends[0], 1, 7);
            sleep_ms(1);
            continue;
        }
        put_pattern(ends[0], 100, done);
        IS(epolled(set, ends[1], PATIENCE), EPOLLIN);
        get_pattern(ends[1], 100, done);
        FAILS(recv(ends[1], &byte, 1, MSG_DONTWAIT), EAGAIN);
        done++;
        printf("told %d\n", done), fflush(stdout);
    }
    say("each was told");
}
