// epoll_wait with fewer places than there is to tell: everything that is ready has its turn, be it connections or pipes, and however
// many there are of each.
#include "check.h"

enum { WAITS = 500, MOST = 64 };

static int fds[MOST], count, told[MOST];

static void adds(int set, int fd) {
    struct epoll_event ev = {.events = EPOLLIN, .data.u32 = (uint32_t)count};
    IS(epoll_ctl(set, EPOLL_CTL_ADD, fd, &ev), 0);
    fds[count++] = fd;
}

// All of them are ready all the while. Each is told of at least a quarter as often as if all were told equally often.
static void turns(int connections, int pipes, int room) {
    int set = epoll_create1(0);
    count = 0;
    for (int i = 0; i < connections; i++) {
        int ends[2];
        pair_here(ends);
        put_all(ends[1], "x", 1);
        adds(set, ends[0]);
    }
    for (int i = 0; i < pipes; i++) {
        int ends[2];
        IS(pipe(ends), 0);
        CHECK(write(ends[1], "x", 1) == 1);
        adds(set, ends[0]);
    }
    memset(told, 0, sizeof told);
    for (int i = 0; i < WAITS; i++) {
        struct epoll_event got[MOST];
        bool twice[MOST] = {false};
        IS(epoll_wait(set, got, room, PATIENCE), room);
        for (int k = 0; k < room; k++) {
            CHECK(!twice[got[k].data.u32]);
            twice[got[k].data.u32] = true;
            told[got[k].data.u32]++;
        }
        if (i % 4 == 0) usleep(50);
    }
    for (int i = 0; i < count; i++) {
        if (told[i] * count * 4 < WAITS * room) fprintf(stderr, "%d connections, %d pipes, %d places: number %d %d times\n", connections, pipes, room, i, told[i]);
        CHECK(told[i] * count * 4 >= WAITS * room);
    }
    say("%d connections, %d pipes, %d places", connections, pipes, room);
}

int main(void) {
    turns(8, 2, 4);
    turns(8, 40, 8);
    turns(24, 8, 16);
    turns(4, 40, 3);
}
