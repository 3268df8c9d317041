// One connection whose network path is cut by somebody else, and mended: `path server ADDRESS PORT` sends a stream that both ends can compute, a little every
// few milliseconds, until SIGUSR1; `path client ADDRESS PORT` compares it. Ten times a second each says how far it has come.
// All the time each has its own keepalive settings, and must see no others, though the kernel has others while a ring carries bytes. Before the server ends it has the
// socket handed over, to stdio: from then on the kernel has its own again.
#include "check.h"
#include "raw.h"
#include <sys/syscall.h>

enum { PIECE = 3000, PAUSE = 3, SAY = 100 };

static volatile sig_atomic_t over;
static void end(int signal) { (void)signal, over = 1; }

static const struct {
    int level, name, value[2];
} OPTIONS[] = {
    {SOL_SOCKET, SO_KEEPALIVE, {0, 1}},
    {IPPROTO_TCP, TCP_KEEPIDLE, {100, 3000}},
    {IPPROTO_TCP, TCP_KEEPINTVL, {33, 44}},
    {IPPROTO_TCP, TCP_KEEPCNT, {7, 3}},
    {IPPROTO_TCP, TCP_USER_TIMEOUT, {3000000, 0}},
};
enum { MANY = sizeof OPTIONS / sizeof *OPTIONS };

// What the kernel itself says.
static int raw_option(int fd, int level, int name) {
    int value = -1;
    socklen_t len = sizeof value;
    IS(raw_call(SYS_getsockopt, fd, level, name, (long)&value, (long)&len), 0);
    return value;
}

static bool lent;

static void set_options(int fd, int who) {
    for (int i = 0; i < MANY; i++) IS(setsockopt(fd, OPTIONS[i].level, OPTIONS[i].name, &OPTIONS[i].value[who], sizeof(int)), 0);
}

static void own_options(int fd, int who) {
    for (int i = 0; i < MANY; i++) {
        int value = -1;
        socklen_t len = sizeof value;
        IS(getsockopt(fd, OPTIONS[i].level, OPTIONS[i].name, &value, &len), 0);
        IS(len, sizeof value);
        IS(value, OPTIONS[i].value[who]);
    }
    if (!lent && raw_option(fd, SOL_SOCKET, SO_KEEPALIVE) != OPTIONS[0].value[who]) lent = true, say("lent");
}

// What is said goes to a file: nothing waits for it.
static void now_and_then(int fd, int who, size_t at) {
    static int64_t last;
    static int times;
    int64_t now = now_ms();
    if (now - last < SAY) return;
    last = now;
    own_options(fd, who);
    // The program may set them whenever it likes.
    if (++times % 50 == 0) set_options(fd, who);
    say("%zu", at);
}

static void server(int fd) {
    uint8_t part[PIECE];
    size_t at = 0;
    CHECK(signal(SIGUSR1, end) != SIG_ERR);
    while (!over) {
        fill(part, at, sizeof part, 5);
        for (size_t done = 0; done < sizeof part;) {
            ssize_t n = send(fd, part + done, sizeof part - done, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (n < 0) {
                CHECK(errno == EAGAIN || errno == EINTR);
                polled(fd, POLLOUT, 50);
            } else done += (size_t)n;
            now_and_then(fd, 0, at + done);
        }
        at += sizeof part;
        sleep_ms(PAUSE);
    }
    FILE *file = fdopen(dup(fd), "w");
    CHECK(file);
    for (int i = 0; i < MANY; i++) IS(raw_option(fd, OPTIONS[i].level, OPTIONS[i].name), OPTIONS[i].value[0]);
    IS(shutdown(fd, SHUT_WR), 0);
    size_t arrived;
    get_all(fd, &arrived, sizeof arrived);
    IS(arrived, at);
    say("all of %zu", at);
}

static void client(int fd) {
    uint8_t part[8192];
    size_t at = 0;
    for (;;) {
        ssize_t n = recv(fd, part, sizeof part, MSG_DONTWAIT);
        if (n == 0) break;
        if (n < 0) {
            CHECK(errno == EAGAIN || errno == EINTR);
            polled(fd, POLLIN, 50);
        } else {
            same(part, at, (size_t)n, 5);
            at += (size_t)n;
        }
        now_and_then(fd, 1, at);
    }
    put_all(fd, &at, sizeof at);
    say("all of %zu", at);
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[3]))};
    CHECK(inet_pton(AF_INET, argv[2], &at.sin_addr) == 1);
    int who = !strcmp(argv[1], "client"), fd;
    if (who) {
        fd = connect_to(&at);
    } else {
        int listener = listen_at(&at, 1);
        say("listening");
        fd = accept_from(listener);
    }
    set_options(fd, who);
    warm_up(fd, who);
    (who ? client : server)(fd);
}
