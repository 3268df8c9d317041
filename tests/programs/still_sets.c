// A set that has had nothing but plain connections, for long: a thread sleeps on it while another adds connections, uses them until rings carry them, changes and removes them, and a child is made. Nothing
// that comes is missed, on the old connections nor on the new ones.
#include "check.h"
#include "raw.h"
#include <sys/syscall.h>

enum { BEFORE = 1200, MESSAGES = 120, TIMES = 4 };

static int set;

// An end past the shim: what it is connected to is never carried.
static int raw_client(const struct sockaddr_in *at) {
    int fd = (int)raw_call(SYS_socket, AF_INET, SOCK_STREAM, 0, 0, 0);
    CHECK(fd >= 0 && raw_call(SYS_connect, fd, (long)at, sizeof *at, 0, 0) == 0);
    return fd;
}

static void raw_exchange(int fd, char byte) {
    char got = 0;
    IS(raw_call(SYS_write, fd, (long)&byte, 1, 0, 0), 1);
    IS(raw_call(SYS_read, fd, (long)&got, 1, 0, 0), 1);
    IS(got, byte);
}

static void add(int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    IS(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
}

// Waits once, and echoes. False: the end of one, or nothing in time.
static bool echo_once(void) {
    struct epoll_event event;
    int n = epoll_wait(set, &event, 1, PATIENCE);
    if (n != 1) return false;
    char text[64];
    ssize_t got = recv(event.data.fd, text, sizeof text, 0);
    if (got <= 0) return false;
    IS(send(event.data.fd, text, (size_t)got, MSG_NOSIGNAL), got);
    return text[0] != '.';
}

static void *echoes(void *none) {
    while (echo_once()) {}
    return none;
}

static void exchange(int fd, int i) {
    uint8_t text[16];
    put_pattern(fd, sizeof text, i);
    get_pattern(fd, sizeof text, i);
}

int main(void) {
    struct sockaddr_in at;
    int listener = listen_on(&at), old = raw_client(&at), of_old = accept_from(listener);
    struct timeval patience = {.tv_sec = PATIENCE / 1000};
    IS(raw_call(SYS_setsockopt, old, SOL_SOCKET, SO_RCVTIMEO, (long)&patience, sizeof patience), 0);
    set = epoll_create1(0);
    CHECK(set >= 0);
    add(of_old);
    char byte = 'a';
    for (int i = 0; i < BEFORE; i++) {
        IS(raw_call(SYS_write, old, (long)&byte, 1, 0, 0), 1);
        CHECK(echo_once());
        IS(raw_call(SYS_read, old, (long)&byte, 1, 0, 0), 1);
    }
    pthread_t sleeper;
    for (int time = 0; time < TIMES; time++) {
        IS(pthread_create(&sleeper, NULL, echoes, NULL), 0);
        sleep_ms(20);
        // The thread sleeps: nobody else is going to tell it.
        int new = connect_to(&at), of_new = accept_from(listener);
        IS(setsockopt(new, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
        add(of_new);
        for (int i = 0; i < MESSAGES; i++) {
            exchange(new, i);
            if (i % 3 == 0) sleep_ms(1);
            if (i % 8 == 0) raw_exchange(old, (char)('a' + i % 16));
            if (i == MESSAGES / 2) {
                struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = of_new};
                IS(epoll_ctl(set, EPOLL_CTL_MOD, of_new, &event), 0);
            }
        }
        if (time == 2) {
            // From here on the set is two processes'.
            pid_t child = fork();
            CHECK(child >= 0);
            if (child == 0) _exit(0);
            int status;
            IS(waitpid(child, &status, 0), child);
            exchange(new, 1);
        }
        IS(epoll_ctl(set, EPOLL_CTL_DEL, of_new, NULL), 0);
        // The set is the plain connection's alone again.
        for (int i = 0; i < BEFORE; i++) raw_exchange(old, 'b');
        raw_exchange(old, '.');
        IS(pthread_join(sleeper, NULL), 0);
        IS(close(new), 0);
        IS(close(of_new), 0);
    }
    say("nothing was missed");
}
