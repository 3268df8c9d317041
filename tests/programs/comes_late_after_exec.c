// A process has a connection to itself, whose other end speaks past anything preloaded, for so long that nobody is expected there; then it makes room for another program, which goes on. Under the shim both
// ends move into rings when the other end comes.
#include "late.h"

int main(int argc, char **argv) {
    if (argc > 3 && strcmp(argv[1], "--answer") == 0) {
        int from = atoi(argv[3]);
        answers(atoi(argv[2]), from, WHOLE - from);
        return 0;
    }
    struct sockaddr_in at;
    int listener = listen_on(&at), fd;
    pid_t child = late_client(listener, &at, &fd);
    answers(fd, 0, LONG / 2);
    pid_t heir = fork();
    CHECK(heir >= 0);
    if (heir == 0) {
        int at_exec = LONG - 300;
        answers(fd, LONG / 2, at_exec - LONG / 2);
        char number[12], from[12];
        snprintf(number, sizeof number, "%d", fd);
        snprintf(from, sizeof from, "%d", at_exec);
        execl("/proc/self/exe", argv[0], "--answer", number, from, NULL);
        _exit(1);
    }
    close(fd);
    IS(ended(heir), 0);
    IS(ended(child), 0);
    say("in another program");
}
