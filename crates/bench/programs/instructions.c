/* Messages of 64 bytes there and back between the two ends of connections that one thread has both
 * ends of, so that nothing ever waits: instructions counted in it are the same from run to run.
 *
 *   instructions plain|epoll|many MESSAGES
 *
 * plain: one connection, write and read. epoll: each read after an epoll_wait that tells of it.
 * many: 50 connections are written to, and one set tells the server of all. */
#include "common.h"

enum { SIZE = 64, MOST = 50, ROOM = 256 };

static void send_one(int fd) {
    char bytes[SIZE] = {0};
    if (write(fd, bytes, SIZE) != SIZE) die("write");
}

static void take_one(int fd) {
    char bytes[4096];
    if (read(fd, bytes, sizeof bytes) != SIZE) die("read");
}

static int set_of(const int *fds, int count) {
    int set = epoll_create1(0);
    for (int i = 0; i < count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fds[i]};
        if (epoll_ctl(set, EPOLL_CTL_ADD, fds[i], &event) < 0) die("epoll_ctl");
    }
    return set;
}

/* Takes and answers, or only takes, what the set tells of, until it was `count`. */
static void serve(int set, int count, int answers) {
    struct epoll_event events[ROOM];
    while (count > 0) {
        int ready = epoll_wait(set, events, ROOM, 10000);
        if (ready <= 0) die("epoll_wait");
        for (int i = 0; i < ready; i++, count--) {
            take_one(events[i].data.fd);
            if (answers) send_one(events[i].data.fd);
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 3) die("instructions plain|epoll|many MESSAGES");
    int count = strcmp(argv[1], "many") == 0 ? MOST : 1, polls = strcmp(argv[1], "plain") != 0;
    int clients[MOST], servers[MOST];
    struct options options = {.addr = "127.0.0.1:0", .nodelay = 1};
    int listener = listening(&options);
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    if (getsockname(listener, (struct sockaddr *)&address, &length) < 0) die("getsockname");
    char at[32];
    snprintf(at, sizeof at, "127.0.0.1:%d", ntohs(address.sin_port));
    options.addr = at;
    for (int i = 0; i < count; i++) {
        clients[i] = connected(&options);
        servers[i] = accepted(listener, &options);
    }
    int server = set_of(servers, count), client = set_of(clients, 1);
    for (long left = atol(argv[2]); left > 0; left -= count) {
        for (int i = 0; i < count; i++) send_one(clients[i]);
        if (polls) serve(server, count, 1);
        else take_one(servers[0]), send_one(servers[0]);
        if (polls && count == 1) serve(client, 1, 0);
        else
            for (int i = 0; i < count; i++) take_one(clients[i]);
    }
    puts("end");
    return 0;
}
