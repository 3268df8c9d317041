// A server that sends back what it is sent, and its client, each with one thread and one epoll set (edges). Two programs of
// different C libraries meet by it.
//
//   pair serve                           says where it listens; until SIGTERM
//   pair ask ADDRESS CONNECTIONS ROUNDS  compares what comes back, says so, and stays until SIGTERM
//   pair run PROGRAM ARGUMENTS           becomes another program
#include "check.h"

enum { MOST = 4096 };

static volatile sig_atomic_t told_to_end;
static void end(int number) { (void)number, told_to_end = 1; }

static void unblocked(int fd) {
    int one = 1;
    IS(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    IS(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one), 0);
}

static int watched_by(int set, int fd) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET | EPOLLRDHUP, .data.fd = fd};
    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
}

static void serve(void) {
    struct sockaddr_in at;
    int listener = listen_on(&at), set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event accepts = {.events = EPOLLIN, .data.fd = listener}, events[16];
    IS(fcntl(listener, F_SETFL, O_NONBLOCK), 0);
    IS(epoll_ctl(set, EPOLL_CTL_ADD, listener, &accepts), 0);
    say("127.0.0.1:%d", ntohs(at.sin_port));
    while (!told_to_end) {
        int count = epoll_wait(set, events, 16, 1000);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            char text[MOST];
            if (fd == listener) {
                while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
                    unblocked(fd);
                    IS(watched_by(set, fd), 0);
                }
                continue;
            }
            ssize_t got;
            while ((got = read(fd, text, sizeof text)) > 0) put_all(fd, text, (size_t)got);
            if (got == 0 || errno != EAGAIN) close(fd);
        }
    }
}

struct talk {
    int fd;
    long round;
    size_t sent, got;
};

// Each round is a piece of another length.
static size_t length_of(long round) { return round % 50 == 49 ? MOST : (size_t)(1 + round * 7919 % 200); }

// Sends and receives as far as it goes; false: all rounds are over.
static bool goes_on(struct talk *talk, long rounds) {
    uint8_t piece[MOST], back[MOST];
    while (talk->round < rounds) {
        size_t length = length_of(talk->round);
        fill(piece, 0, length, (int)talk->round);
        if (talk->sent < length) {
            ssize_t put = write(talk->fd, piece + talk->sent, length - talk->sent);
            if (put < 0) { CHECK(errno == EAGAIN); return true; }
            talk->sent += (size_t)put;
            continue;
        }
        ssize_t got = read(talk->fd, back, length - talk->got);
        if (got < 0) { CHECK(errno == EAGAIN); return true; }
        CHECK(got > 0);
        same(back, talk->got, (size_t)got, (int)talk->round);
        talk->got += (size_t)got;
        if (talk->got == length) talk->round++, talk->sent = talk->got = 0;
    }
    return false;
}

static void ask(const char *address, long count, long rounds) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    at.sin_port = htons((uint16_t)atoi(strchr(address, ':') + 1));
    struct talk *talks = calloc((size_t)count, sizeof *talks);
    int set = epoll_create1(EPOLL_CLOEXEC);
    long open = count;
    for (long i = 0; i < count; i++) {
        talks[i].fd = connect_to(&at);
        unblocked(talks[i].fd);
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = &talks[i]};
        IS(epoll_ctl(set, EPOLL_CTL_ADD, talks[i].fd, &event), 0);
    }
    while (open > 0) {
        struct epoll_event events[16];
        int ready = epoll_wait(set, events, 16, PATIENCE);
        CHECK(ready > 0);
        for (int i = 0; i < ready; i++) {
            struct talk *talk = events[i].data.ptr;
            if (talk->round < rounds && !goes_on(talk, rounds)) open--;
        }
    }
    say("all came back");
    while (!told_to_end) poll(NULL, 0, 100);
}

int main(int argc, char **argv) {
    signal(SIGTERM, end);
    CHECK(argc > 1);
    if (strcmp(argv[1], "serve") == 0) serve();
    else if (strcmp(argv[1], "run") == 0) IS(execvp(argv[2], argv + 2), 0);
    else ask(argv[2], atol(argv[3]), atol(argv[4]));
    return 0;
}
