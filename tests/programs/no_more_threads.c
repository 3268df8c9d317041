// After unshare(CLONE_NEWPID) the kernel starts no thread for a process. Its connections go on, also where the other end asks for
// what needs an answer while this one does something else; and so do those that it makes from then on.
#define _GNU_SOURCE
#include <sched.h>
#include "check.h"

enum { BLOCK = 300000 };

static void passes_it_on(int fd) {
    hear();
    put_pattern(fd, BLOCK, 1);
    // The socket as it is, for somebody who may not have the shim.
    int over[2];
    IS(socketpair(AF_UNIX, SOCK_STREAM, 0, over), 0);
    pass(over[0], fd);
    int copy = passed_over(over[1]);
    put_pattern(copy, BLOCK, 2);
    hear();
    get_pattern(fd, BLOCK, 3);
}

static void talks(void) {
    tell();
    // Meanwhile the other end has its hand-over answered.
    sleep_ms(300);
}

static void answers(int fd) { warm_up(fd, true); }

int main(void) {
    int fd = with_peer(passes_it_on);
    // (Without root the kernel refuses, and all is as it was.)
    bool done = unshare(CLONE_NEWPID) == 0;
    pthread_t thread;
    if (done) IS(pthread_create(&thread, NULL, NULL, NULL), EINVAL);
    talks();
    get_pattern(fd, BLOCK, 1);
    get_pattern(fd, BLOCK, 2);
    put_pattern(fd, BLOCK, 3);
    tell();
    peer_ends();
    close(fd);
    fd = with_peer(answers);
    warm_up(fd, false);
    peer_ends();
    say("went on");
}
