// A socket is sent over a unix socket before its first use, and lies there while it is used here, first by one thread or by two at once. Then a process that runs without the preloaded library takes it, and
// echoes on it; after that it is used here again.
#include "check.h"

enum { LENGTH = 40000, BY_TWO = 12 };

static void peer(int fd) {
    warm_up(fd, true);
    hear();
    put_pattern(fd, LENGTH, 7);
    get_pattern(fd, LENGTH, 7);
    warm_up(fd, true);
}

static void first_peer(int fd) {
    get_all(fd, (char[2]){0}, 2);
    peer(fd);
}

static int used;
static pthread_barrier_t start;

static void *uses(void *unused) {
    (void)unused;
    pthread_barrier_wait(&start);
    IS(send(used, "x", 1, MSG_NOSIGNAL), 1);
    return NULL;
}

static void used_by_two(int fd) {
    pthread_t thread;
    used = fd;
    IS(pthread_barrier_init(&start, NULL, 2), 0);
    IS(pthread_create(&thread, NULL, uses, NULL), 0);
    uses(NULL);
    IS(pthread_join(thread, NULL), 0);
    IS(pthread_barrier_destroy(&start), 0);
}

static void one_is_passed(const char *programs, bool by_two) {
    int sides[2];
    IS(socketpair(AF_UNIX, SOCK_STREAM, 0, sides), 0);
    int fd = with_peer_and(by_two ? first_peer : peer, false);
    // It is the passed one alone that the other process has.
    IS(fcntl(fd, F_SETFD, FD_CLOEXEC), 0);
    pass(sides[0], fd);
    if (by_two) used_by_two(fd);
    warm_up(fd, false);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char path[PATH_MAX], number[16], length[16];
        snprintf(path, sizeof path, "%s/echo_raw", programs);
        snprintf(number, sizeof number, "@%d", sides[1]), snprintf(length, sizeof length, "%d", LENGTH);
        unsetenv("LD_PRELOAD");
        execl(path, path, number, length, NULL);
        _exit(9);
    }
    tell();
    IS(ended(child), 0);
    warm_up(fd, false);
    peer_ends();
    close(fd), close(sides[0]), close(sides[1]);
    say("echoed by a process without the library");
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    int here[2];
    pair_here(here);
    close(here[0]), close(here[1]);
    one_is_passed(argv[1], false);
    for (int i = 0; i < BY_TWO; i++) one_is_passed(argv[1], true);
}
