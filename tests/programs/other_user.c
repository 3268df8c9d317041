// A server's worker becomes another user before it accepts, as the workers of many servers do, and echoes to a client that sleeps between messages.
#include "check.h"

enum { MESSAGES = 100, SIZE = 500 };

int main(void) {
    struct sockaddr_in at;
    int listener = listen_on(&at);
    pid_t worker = fork();
    if (worker == 0) {
        // Without root it stays who it is.
        if (geteuid() == 0) CHECK(setgid(65534) == 0 && setuid(65534) == 0);
        int fd = accept_from(listener);
        char text[SIZE];
        for (int i = 0; i < MESSAGES; i++) {
            get_all(fd, text, sizeof text);
            sleep_ms(2);  // the client is asleep by now
            put_all(fd, text, sizeof text);
        }
        IS(read(fd, text, 1), 0);
        exit(0);
    }
    int fd = connect_to(&at);
    struct timeval limit = {.tv_sec = PATIENCE / 1000};
    IS(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    for (int i = 0; i < MESSAGES; i++) {
        put_pattern(fd, SIZE, i);
        get_pattern(fd, SIZE, i);
        sleep_ms(1);  // so is the worker
    }
    close(fd);
    IS(ended(worker), 0);
    say("%d messages echoed by another user", MESSAGES);
}
