// Processes that confine themselves to an empty root directory and become another user, before their connection is made or once it carries: what sleeps at either end is woken.
#include "check.h"

enum { CHILDREN = 4, MESSAGES = 60, SIZE = 700, NOBODY = 65534 };

static void confine(void) {
    // Without root it stays where and who it is.
    if (geteuid() != 0) return;
    confine_to_nothing();
    IS(setgid(NOBODY), 0);
    IS(setuid(NOBODY), 0);
    CHECK(setuid(0) < 0);
}

// Asleep in the receive itself, or in a poll before it.
static void get(int fd, int i) {
    if (i / 4 % 2) when_readable(fd);
    get_pattern(fd, SIZE, i);
}

static void serve(int listener, bool carries) {
    if (!carries) confine();
    int fd = accept_from(listener);
    warm_up(fd, false);
    if (carries) confine();
    for (int i = 0; i < MESSAGES; i++) {
        get(fd, i);
        if (i % 2) sleep_ms(3);  // the client is asleep by now
        put_pattern(fd, SIZE, i);
    }
    _exit(0);
}

int main(void) {
    struct sockaddr_in at;
    int listener = listen_on(&at);
    for (int child = 0; child < CHILDREN; child++) {
        pid_t server = fork();
        if (server == 0) serve(listener, child % 2);
        int fd = connect_to(&at);
        warm_up(fd, true);
        for (int i = 0; i < MESSAGES; i++) {
            if (i % 3) sleep_ms(3);  // so is the server
            put_pattern(fd, SIZE, i), get(fd, i);
        }
        IS(read(fd, (char[1]){0}, 1), 0);
        close(fd);
        IS(ended(server), 0);
    }
    say("%d confined servers have answered", CHILDREN);
}
