// A set from which a program takes one event after the other, while somebody spoils what its
// neighbours say of the order: `in_turn rings|kernel|late DIRECTORY`. Everything that is ready has
// its turn. In DIRECTORY are two FIFOs: `again`, by which who spoils is told of each wait, and
// `spoilt`, by which it says that it has done so.
#include "../include/check.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>

enum { WAITS = 300, FAIR = 20 };

static int set, a[2], b[2], again, spoilt;

static void wait_for_signal(const char *text) {
    sigset_t usr1;
    int got;
    sigemptyset(&usr1), sigaddset(&usr1, SIGUSR1);
    IS(sigprocmask(SIG_BLOCK, &usr1, NULL), 0);
    say("%s", text);
    IS(sigwait(&usr1, &got), 0);
}

// How often of so many waits with so much room `fd` was told of.
static int told(int fd, int waits, int room) {
    struct epoll_event got[4];
    int times = 0;
    for (int i = 0; i < waits; i++) {
        CHECK(write(again, "", 1) == 1 && read(spoilt, &(char){0}, 1) == 1);
        int n = epoll_wait(set, got, room, PATIENCE);
        CHECK(n > 0);
        for (int k = 0; k < n; k++) times += got[k].data.fd == fd;
    }
    return times;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    IS(chdir(argv[2]), 0);
    again = open("again", O_RDWR), spoilt = open("spoilt", O_RDWR);
    CHECK(again >= 0 && spoilt >= 0);
    int event = eventfd(0, 0);
    set = epoll_create1(0);
    pair_here(a), pair_here(b);
    IS(epoll_add(set, a[0], EPOLLIN), 0);
    IS(epoll_add(set, b[0], EPOLLIN), 0);
    IS(epoll_add(set, event, EPOLLIN), 0);
    if (!strcmp(argv[1], "rings")) {
        // The kernel has something all the while: so have the rings.
        eventfd_write(event, 1);
        put_all(a[1], "x", 1);
        wait_for_signal("ready");
        CHECK(told(a[0], WAITS, 1) >= FAIR);
    } else if (!strcmp(argv[1], "kernel")) {
        // The rings have something all the while, and the kernel comes later.
        put_all(a[1], "x", 1), put_all(b[1], "x", 1);
        wait_for_signal("ready");
        IS(told(event, WAITS, 1), 0);
        eventfd_write(event, 1);
        CHECK(told(event, WAITS, 1) >= FAIR);
    } else {
        // One ring has something all the while, and another gets some.
        put_all(a[1], "x", 1);
        for (int i = 0; i < 8; i++) IS(epolled(set, a[0], PATIENCE), EPOLLIN);
        put_all(b[1], "x", 1);
        wait_for_signal("ready");
        CHECK(told(b[0], WAITS, 4) >= FAIR);
    }
    say("in turn");
    return 0;
}
