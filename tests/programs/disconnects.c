// connect to AF_UNSPEC: the other end is reset, after what it has not read yet; the socket may be connected again, also where it has two descriptors or another process has it;
// its options are kept.
#include "check.h"
#include <sys/syscall.h>

static void again(int fd, int copy, const char *what) {
    struct sockaddr_in at;
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    char text[8] = "";
    int ends[2] = {fd, -1}, listener = listen_on(&at);
    for (int round = 0; round < 3; round++) {
        IS(connect(fd, (void *)&at, sizeof at), 0);
        CHECK((ends[1] = accept(listener, NULL, NULL)) >= 0);
        warm_pair(ends[0], ends[1]);
        if (copy >= 0) warm_pair(copy, ends[1]);
        // What the one has sent is read before the reset; what the other has sent is lost.
        IS(send(fd, "abc", 3, 0), 3);
        IS(send(ends[1], "lost", 4, 0), 4);
        sleep_ms(20);
        IS(connect(fd, &none, sizeof none), 0);
        if (copy >= 0) IS(send(copy, "x", 1, MSG_NOSIGNAL), -1);
        IS(send(fd, "x", 1, MSG_NOSIGNAL), -1);
        int own = errno;
        int seen = polled(ends[1], POLLIN, PATIENCE);
        IS(recv(ends[1], text, 8, 0), 3);
        FAILS(recv(ends[1], text, 8, 0), ECONNRESET);
        IS(recv(ends[1], text, 8, 0), 0);
        FAILS(send(ends[1], "x", 1, MSG_NOSIGNAL), EPIPE);
        say("%s, round %d: own %s, other %x, %s", what, round, strerror(own), (unsigned)seen, text);
        close(ends[1]);
    }
    close(listener);
}

// What it has set stands in the kernel again, which was told otherwise while a ring carried the connection.
static void options_are_kept(void) {
    static const struct { int level, name, value; } options[] = {
        {SOL_SOCKET, SO_KEEPALIVE, 1}, {IPPROTO_TCP, TCP_KEEPIDLE, 777}, {IPPROTO_TCP, TCP_KEEPINTVL, 33}, {IPPROTO_TCP, TCP_KEEPCNT, 4}, {IPPROTO_TCP, TCP_CORK, 1},
    };
    enum { COUNT = sizeof options / sizeof *options };
    struct sockaddr_in at;
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    int listener = listen_on(&at), fd = connect_to(&at), end = accept_from(listener);
    warm_pair(fd, end);
    for (int i = 0; i < COUNT; i++) IS(setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int)), 0);
    put_pattern(end, 100, 1), get_pattern(fd, 100, 1);
    IS(connect(fd, &none, sizeof none), 0);
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i < COUNT; i++) {
            int value = -1;
            socklen_t len = sizeof value;
            IS(syscall(SYS_getsockopt, fd, options[i].level, options[i].name, &value, &len), 0);
            IS(value, options[i].value);
        }
        if (!again) IS(connect(fd, (void *)&at, sizeof at), 0);
    }
    close(listener), close(end), close(fd);
    say("its options are as it has set them");
}

static void *receives(void *fd) {
    char c;
    // The kernel does not wake it in every version; a shutdown does.
    (void)!recv(*(int *)fd, &c, 1, 0);
    return NULL;
}

int main(void) {
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    char text[8];
    int fd = socket(AF_INET, SOCK_STREAM, 0), ends[2], hold[2];
    again(fd, -1, "alone");
    int copy = dup(fd);
    CHECK(copy >= 0);
    again(fd, copy, "two descriptors");
    close(copy);
    again(fd, -1, "one again");
    IS(pipe(hold), 0);
    pid_t child = fork();
    if (child == 0) {
        close(hold[1]);
        (void)!read(hold[0], text, 1);
        exit(0);
    }
    again(fd, -1, "another process has it");
    close(hold[1]);
    IS(ended(child), 0);
    close(fd);
    options_are_kept();

    // Another connection comes in between, which may be given the first one's place; an end of file of the second is heard of, and an epoll set still has it.
    struct sockaddr_in at;
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7};
    int listener = listen_on(&at), between[2], set = epoll_create1(0);
    CHECK((fd = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
    IS(connect(fd, (void *)&at, sizeof at), 0);
    CHECK((ends[1] = accept(listener, NULL, NULL)) >= 0);
    IS(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
    warm_pair(fd, ends[1]);
    IS(connect(fd, &none, sizeof none), 0);
    close(ends[1]);
    pair_here(between);
    IS(connect(fd, (void *)&at, sizeof at), 0);
    CHECK((ends[1] = accept(listener, NULL, NULL)) >= 0);
    warm_pair(fd, ends[1]);
    IS(epoll_wait(set, &event, 1, 0), 0);
    put_pattern(ends[1], 10, 1);
    IS(epoll_wait(set, &event, 1, PATIENCE), 1);
    IS(event.data.u64, 7);
    get_pattern(fd, 10, 1);
    close(ends[1]);
    for (int i = 0; i < PATIENCE; i++) {
        ssize_t got = recv(fd, text, 1, MSG_DONTWAIT);
        if (got == 0) break;
        CHECK(got < 0 && errno == EAGAIN);
        sleep_ms(1);
    }
    IS(recv(fd, text, 1, MSG_DONTWAIT), 0);
    IS(epoll_wait(set, &event, 1, PATIENCE), 1);
    warm_pair(between[0], between[1]);
    close(between[0]), close(between[1]), close(listener), close(set), close(fd);
    say("anew");

    // Asleep at the other end.
    pair_here(ends);
    pthread_t thread;
    IS(pthread_create(&thread, NULL, receives, &ends[1]), 0);
    sleep_ms(50);
    IS(connect(ends[0], &none, sizeof none), 0);
    IS(pthread_join(thread, NULL), 0);
    IS(recv(ends[1], text, 1, 0), 0);
    say("a sleeper is woken");
}
