// Four processes accept from one listener and echo; a client uses them all; a worker may be killed without hurting others.
#include "check.h"

static void serve(int listener) {
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        char text[4096];
        ssize_t n;
        if (fd < 0) _exit(0);
        while ((n = read(fd, text, sizeof text)) > 0) put_all(fd, text, (size_t)n);
        close(fd);
    }
}

int main(void) {
    struct sockaddr_in at;
    int listener = listen_on(&at);
    pid_t workers[4];
    for (int i = 0; i < 4; i++)
        if ((workers[i] = fork()) == 0) serve(listener);
    for (int round = 0; round < 50; round++) {
        int fd[3];
        for (int i = 0; i < 3; i++) fd[i] = connect_to(&at);
        for (int j = 0; j < 20; j++)
            for (int i = 0; i < 3; i++) put_pattern(fd[i], 500, i + j), get_pattern(fd[i], 500, i + j);
        for (int i = 0; i < 3; i++) {
            IS(shutdown(fd[i], SHUT_WR), 0);
            IS(recv(fd[i], (char[1]){0}, 1, 0), 0);
            close(fd[i]);
        }
        if (round == 25) {
            kill(workers[3], SIGKILL);
            CHECK(WIFSIGNALED(ended(workers[3])));
        }
    }
    close(listener);
    for (int i = 0; i < 3; i++) kill(workers[i], SIGKILL), ended(workers[i]);
    say("150 connections served");
}
