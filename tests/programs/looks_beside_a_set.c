// Whatever looks at a socket beside the epoll set that has it, the set hears of what comes next.
#include "check.h"

enum { ROUNDS_EACH = 12, SIZE = 10 };
enum way { NONE, POLL, SELECT, MARK, PEEK, WAYS };

static void peer(int fd) {
    for (int i = 0; i < WAYS * ROUNDS_EACH * 2; i++) hear(), put_pattern(fd, SIZE, i);
}

static void look(enum way way, int fd) {
    struct timeval now = {0, 0};
    int mark = 0;
    fd_set set;
    switch (way) {
    case POLL: IS(polled(fd, POLLIN, 0), 0); break;
    case SELECT:
        FD_ZERO(&set);
        FD_SET(fd, &set);
        IS(select(fd + 1, &set, NULL, NULL, &now), 0);
        break;
    case MARK: IS(ioctl(fd, SIOCATMARK, &mark), 0); break;
    case PEEK: FAILS(recv(fd, &mark, 1, MSG_PEEK | MSG_DONTWAIT), EAGAIN); break;
    default: break;
    }
}

int main(void) {
    // Not moved yet: a set that slept on TCP is to hear of the first bytes in a ring.
    for (enum way way = 0; way < WAYS; way++) {
        int fd = with_peer_and(peer, false), set = epoll_create1(0), n = 0;
        IS(epoll_add(set, fd, EPOLLIN), 0);
        for (int i = 0; i < ROUNDS_EACH; i++) {
            IS(epolled(set, fd, 5), 0);
            tell();
            sleep_ms(5);
            get_pattern(fd, SIZE, n++);  // not told by the set, and all that is there
            look(way, fd);
            tell();
            IS(epolled(set, fd, PATIENCE), EPOLLIN);
            get_pattern(fd, SIZE, n++);
        }
        close(set), close(fd);
        close(side);
        IS(waitpid(other, NULL, 0), other);
        printf("way %d\n", (int)way);
    }
}
