// Closing a socket in one thread while another polls it: the poll ends by its own rules, the number is free at once, and the
// other end sees the end of file when the last use is over.
#include "check.h"

static int fd;

static void *poll_it(void *revents) {
    *(int *)revents = polled(fd, POLLIN, 500);
    return NULL;
}

static void peer(int to) {
    for (int i = 0; i < 3; i++) {
        IS(recv(to, (char[1]){0}, 1, 0), 0);
        tell();
        return;
    }
}

int main(void) {
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        int revents = -1;
        fd = with_peer(peer);
        IS(pthread_create(&thread, NULL, poll_it, &revents), 0);
        sleep_ms(100);
        IS(close(fd), 0);
        IS(polled(fd, POLLIN, 0), POLLNVAL);
        FAILS(recv(fd, (char[1]){0}, 1, 0), EBADF);
        pthread_join(thread, NULL);
        hear();
        peer_ends();
        say("poll said %d", revents & ~POLLNVAL);
    }
}
