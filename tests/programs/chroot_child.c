// Processes that serve from an empty root directory, without /proc, and end with their connections open (daemons do so).
#include "check.h"

enum { CHILDREN = 6, MESSAGES = 80, SIZE = 700 };

static void confine(void) {
    if (geteuid() == 0) confine_to_nothing();
}

static void serve(int listener) {
    int fd = accept_from(listener);
    for (int i = 0; i < MESSAGES; i++) get_pattern(fd, SIZE, i), put_pattern(fd, SIZE, i);
    _exit(0);
}

int main(void) {
    struct sockaddr_in at;
    int listener = listen_on(&at);
    pid_t daemon = fork();
    if (daemon == 0) {
        confine();
        for (int i = 0; i < CHILDREN; i++) {
            pid_t child = fork();
            if (child == 0) serve(listener);
            IS(ended(child), 0);
        }
        exit(0);
    }
    for (int i = 0; i < CHILDREN; i++) {
        int fd = connect_to(&at);
        for (int k = 0; k < MESSAGES; k++) put_pattern(fd, SIZE, k), get_pattern(fd, SIZE, k);
        char byte;
        IS(read(fd, &byte, 1), 0);
        close(fd);
    }
    IS(ended(daemon), 0);
    say("%d children served", CHILDREN);
}
