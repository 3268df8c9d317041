// A child's edges are told to its parent, which has closed the number, also where the other end has the kernel send by itself
// (MSG_ZEROCOPY): nobody counts those bytes.
#include "check.h"

#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif
#ifndef MSG_ZEROCOPY
#define MSG_ZEROCOPY 0x4000000
#endif

int main(void) {
    int pair[2], to[2], set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = 7}, told;
    pair_here(pair);
    IS(setsockopt(pair[0], SOL_SOCKET, SO_ZEROCOPY, &(int){1}, sizeof(int)), 0);
    IS(epoll_ctl(set, EPOLL_CTL_ADD, pair[1], &event), 0);
    put_all(pair[0], "x", 1);
    IS(epoll_wait(set, &told, 1, PATIENCE), 1);
    get_all(pair[1], &(char){0}, 1);
    IS(pipe(to), 0);
    pid_t child = fork();
    if (child == 0) {
        // A letter for each piece that is sent, and one when it is to be read: sooner, there is none to tell of.
        char piece[10];
        for (char c; read(to[0], &c, 1) == 1 && c != 'e';) {
            if (c == 'r') get_all(pair[1], piece, sizeof piece);
            else if (send(pair[0], "0123456789", sizeof piece, MSG_ZEROCOPY) != sizeof piece) _exit(1);
        }
        _exit(0);
    }
    close(pair[1]);
    IS(epoll_wait(set, &told, 1, 0), 0);
    for (int i = 0; i < 3; i++) {
        IS(write(to[1], "s", 1), 1);
        say("piece %d: %d", i, epoll_wait(set, &told, 1, PATIENCE));
        IS(write(to[1], "r", 1), 1);
    }
    IS(write(to[1], "e", 1), 1);
    IS(ended(child), 0);
}
