// A thread leaves the table of descriptors that the others use (unshare, close_range): there it closes all, and numbers
// mean other files. The others' connections go on.
#define _GNU_SOURCE
#include <sched.h>
#include <sys/syscall.h>

#include "check.h"

enum { TIMES = 200 };

static void *apart(void *by_unshare) {
    if (by_unshare) IS(unshare(CLONE_FILES), 0);
    IS(syscall(SYS_close_range, 3, ~0U, by_unshare ? 0 : 2 /* CLOSE_RANGE_UNSHARE */), 0);
    for (int i = 0; i < TIMES; i++) {
        int ends[8][2];
        char text[7] = "";
        for (int at = 0; at < 8; at++) {
            IS(socketpair(AF_UNIX, SOCK_STREAM, 0, ends[at]), 0);
            IS(write(ends[at][0], "beside", 6), 6);
            IS(read(ends[at][1], text, 6), 6);
            CHECK(!strcmp(text, "beside"));
        }
        for (int at = 0; at < 16; at++) IS(close(ends[at / 2][at % 2]), 0);
    }
    return NULL;
}

static void peer(int fd) {
    warm_up(fd, true);
    for (int i = 0; i < 20; i++) {
        put_pattern(fd, 30000, i);
        get_pattern(fd, 30000, i);
    }
    IS(recv(fd, (char[1]){0}, 1, 0), 0);
}

static void others_go_on(bool by_unshare) {
    int fd = with_peer(peer);
    warm_up(fd, false);
    pthread_t thread;
    for (int i = 0; i < 20; i++) {
        if (i == 10) IS(pthread_create(&thread, NULL, apart, by_unshare ? "" : NULL), 0);
        get_pattern(fd, 30000, i);
        put_pattern(fd, 30000, i);
    }
    IS(pthread_join(thread, NULL), 0);
    IS(shutdown(fd, SHUT_RDWR), 0);
    close(fd);
    peer_ends();
}

int main(void) {
    for (int way = 0; way < 2; way++) {
        pid_t child = fork();
        if (child == 0) {
            others_go_on(way);
            return 0;
        }
        IS(ended(child), 0);
        say(way ? "by unshare" : "by close_range");
    }
}
