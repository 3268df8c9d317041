// Handlers of signals close, or shut down, a connection on which their thread is at work. It ends; its number is another's afterwards; nobody hangs.
#include "check.h"

enum { TURNS = 240 };

static int used, way, act;
static volatile sig_atomic_t done;

static void on_signal(int sig) {
    (void)sig;
    int saved = errno;
    if (act == 0) CHECK(close(used) == 0);
    else CHECK(shutdown(used, act == 1 ? SHUT_RDWR : SHUT_WR) == 0);
    done = 1;
    errno = saved;
}

// One connection after the other.
static void echo(int listener) {
    for (;;) {
        int fd = accept_from(listener);
        char text[64];
        ssize_t n;
        while ((n = recv(fd, text, sizeof text, 0)) > 0 && send(fd, text, (size_t)n, MSG_NOSIGNAL) == n) {}
        close(fd);
    }
}

// False once the connection has ended.
static bool exchange(int fd, int set) {
    char text[64] = {0};
    if (send(fd, text, sizeof text, MSG_NOSIGNAL) != sizeof text) return false;
    for (size_t at = 0; at < sizeof text;) {
        struct epoll_event event;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (way == 1 && epoll_wait(set, &event, 1, 100) != 1 && done) return false;
        if (way == 2 && poll(&p, 1, 100) != 1 && done) return false;
        ssize_t n = recv(fd, text + at, sizeof text - at, way == 0 ? 0 : MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR) && !done) continue;
        if (n <= 0) return false;
        at += (size_t)n;
    }
    return true;
}

int main(void) {
    struct sockaddr_in at;
    int listener = listen_on(&at);
    pid_t server = fork();
    if (server == 0) echo(listener);
    signal(SIGALRM, on_signal);
    unsigned seed = 1;
    for (int i = 0; i < TURNS; i++) {
        int fd = used = connect_to(&at), set = epoll_create1(0);
        IS(epoll_add(set, fd, EPOLLIN), 0);
        way = i % 3, act = i / 3 % 3, done = 0;
        for (int turn = 0; turn < 20; turn++) CHECK(exchange(fd, set));
        struct itimerval soon = {.it_value = {.tv_usec = 500 + rand_r(&seed) % 3000}};
        IS(setitimer(ITIMER_REAL, &soon, NULL), 0);
        while (exchange(fd, set)) {}
        CHECK(done);
        if (act != 0) {
            // The other end's bytes, and its end.
            char rest[64];
            ssize_t n;
            while ((n = recv(fd, rest, sizeof rest, 0)) > 0) {}
            CHECK(n == 0 || errno == ECONNRESET);
            IS(close(fd), 0);
        } else {
            CHECK(recv(fd, &(char){0}, 1, MSG_DONTWAIT) == -1 && (errno == EBADF || errno == ECONNRESET));
        }
        CHECK(epoll_wait(set, &(struct epoll_event){0}, 1, 0) == 0);
        close(set);
    }
    IS(kill(server, SIGKILL), 0);
    CHECK(WTERMSIG(ended(server)) == SIGKILL);
    say("%d connections", TURNS);
}
