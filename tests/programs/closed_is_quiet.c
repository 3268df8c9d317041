// A descriptor that is closed is reported no more, whoever else has just been told of the same reset.
#include "check.h"

int main(void) {
    struct sockaddr_in at;
    int listener = listen_on(&at), set = epoll_create1(0), late = 0;
    for (int i = 0; i < 6000; i++) {
        int client = connect_to(&at), fd = accept_from(listener);
        // Enough for an upgrade.
        for (int j = 0; j < 16; j++) {
            put_pattern(client, 8, j), get_pattern(fd, 8, j);
            put_pattern(fd, 8, j), get_pattern(client, 8, j);
        }
        struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.fd = fd};
        IS(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
        IS(setsockopt(client, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger)), 0);
        IS(close(client), 0);
        IS(epoll_wait(set, &event, 1, PATIENCE), 1);
        IS(event.data.fd, fd);
        IS(close(fd), 0);
        late += epoll_wait(set, &event, 1, 0);
    }
    IS(late, 0);
    say("closed ones are quiet");
}
