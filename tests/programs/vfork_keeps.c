// A vfork child keeps a connection for the program that it becomes: by a copy, by taking close-on-exec away, or because it never was there. That program echoes,
// with the library, without it, or out of its reach; the parent has closed its own descriptor.
#include "check.h"

#include <sys/ioctl.h>

enum { LENGTH = 40000, COPY, FCNTL, IOCTL, INHERIT, WAYS };

static void peer(int fd) {
    put_pattern(fd, LENGTH, 7);
    get_pattern(fd, LENGTH, 7);
    IS(recv(fd, (char[1]){0}, 1, 0), 0);
}

static pid_t start(const char *path, int fd, int way, bool preloaded) {
    char length[16], number[16];
    snprintf(length, sizeof length, "%d", LENGTH), snprintf(number, sizeof number, "%d", way == COPY ? 0 : fd);
    char *const args[] = {(char *)path, number, length, NULL}, *const nothing[] = {NULL};
    IS(fcntl(fd, F_SETFD, way == INHERIT ? 0 : FD_CLOEXEC), 0);
    pid_t child = vfork();
    if (child == 0) {
        if (way == COPY) dup2(fd, 0);
        if (way == FCNTL) fcntl(fd, F_SETFD, 0);
        if (way == IOCTL) ioctl(fd, FIONCLEX);
        execve(path, args, preloaded ? environ : nothing);
        _exit(9);
    }
    CHECK(child > 0);
    return child;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    for (int way = COPY; way < WAYS; way++)
        for (int program = 0; program < 3; program++) {
            char path[PATH_MAX];
            snprintf(path, sizeof path, "%s/echo_raw%s", argv[1], program == 2 ? "-static" : "");
            int fd = with_peer(peer);
            pid_t child = start(path, fd, way, program == 0);
            IS(close(fd), 0);
            IS(ended(child), 0);
            peer_ends();
            say("echoed, way %d, program %d", way - COPY, program);
        }
}
