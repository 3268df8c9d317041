/* Messages of 64 bytes there and back between the two ends of connections that one thread has both
 * ends of, so that nothing ever waits: instructions counted in it are the same from run to run.
 *
 *   instructions plain|epoll|many MESSAGES
 *
 * plain: one connection, write and read. epoll: each read after an epoll_wait that tells of it.
 * many: 50 connections are written to, and one set tells the server of all. */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SIZE = 64, MOST = 50, ROOM = 256 };

static void must(int holds, const char *what) {
    if (!holds) {
        perror(what);
        exit(1);
    }
}

static void quick(int fd) {
    int one = 1;
    must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, "TCP_NODELAY");
}

static void send_one(int fd) {
    char bytes[SIZE] = {0};
    must(write(fd, bytes, SIZE) == SIZE, "write");
}

static void take_one(int fd) {
    char bytes[4096];
    must(read(fd, bytes, sizeof bytes) == SIZE, "read");
}

static int set_of(const int *fds, int count) {
    int set = epoll_create1(0);
    must(set >= 0, "epoll_create1");
    for (int i = 0; i < count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fds[i]};
        must(epoll_ctl(set, EPOLL_CTL_ADD, fds[i], &event) == 0, "epoll_ctl");
    }
    return set;
}

/* Takes and answers, or only takes, what the set tells of, until it was `count`. */
static void serve(int set, int count, int answers) {
    struct epoll_event events[ROOM];
    while (count > 0) {
        int ready = epoll_wait(set, events, ROOM, 10000);
        must(ready > 0, "epoll_wait");
        for (int i = 0; i < ready; i++, count--) {
            take_one(events[i].data.fd);
            if (answers) send_one(events[i].data.fd);
        }
    }
}

int main(int argc, char **argv) {
    must(argc == 3, "instructions plain|epoll|many MESSAGES");
    int count = strcmp(argv[1], "many") == 0 ? MOST : 1, polls = strcmp(argv[1], "plain") != 0;
    int clients[MOST], servers[MOST];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    must(bind(listener, (struct sockaddr *)&address, sizeof address) == 0, "bind");
    must(listen(listener, MOST) == 0, "listen");
    must(getsockname(listener, (struct sockaddr *)&address, &length) == 0, "getsockname");
    for (int i = 0; i < count; i++) {
        clients[i] = socket(AF_INET, SOCK_STREAM, 0);
        must(connect(clients[i], (struct sockaddr *)&address, sizeof address) == 0, "connect");
        servers[i] = accept(listener, NULL, NULL);
        must(servers[i] >= 0, "accept");
        quick(clients[i]);
        quick(servers[i]);
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
    puts("ok");
    return 0;
}
