// One connection whose network path somebody else cuts for good: `gives_up server|client ADDRESS PORT WAY`. Each end says how the connection ended for it, and leaves at once, as programs
// do. WAY says what they do at the cut, and who is to tell them of it:
//   writers   both write, and each has a TCP_USER_TIMEOUT
//   reader    the server writes, and has a TCP_USER_TIMEOUT; the client only reads, and has keepalive
//   idle      both lie idle from SIGUSR1 on, and have keepalive: one waits in recv, the other in poll
//   either    both write, and have a TCP_USER_TIMEOUT and keepalive
#include "check.h"

enum { PIECE = 1000, PAUSE = 5, STILL = 500, TIMEOUT = 8000, IDLE = 3, INTERVAL = 2, COUNT = 3 };

static volatile sig_atomic_t over;
static void end(int signal) { (void)signal, over = 1; }

static void set(int fd, int level, int name, int value) { IS(setsockopt(fd, level, name, &value, sizeof value), 0); }

static void keeps_alive(int fd) {
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, IDLE);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, INTERVAL);
    set(fd, IPPROTO_TCP, TCP_KEEPCNT, COUNT);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}

static void ended_by(int error) {
    say("ended: %s", error ? strerror(error) : "end of file");
    exit(0);
}

// True if there was a byte. What cannot be read now is no end.
static bool took(int fd, int flags) {
    static char piece[64 * PIECE];
    ssize_t n = recv(fd, piece, sizeof piece, flags);
    if (n == 0) ended_by(0);
    if (n < 0 && errno != EAGAIN && errno != EINTR) ended_by(errno);
    return n > 0;
}

static void talk(int fd, bool writes) {
    static const char piece[PIECE];
    while (!over) {
        if (writes && send(fd, piece, sizeof piece, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno != EAGAIN && errno != EINTR) ended_by(errno);
        took(fd, MSG_DONTWAIT);
        // Not woken by what comes: each writes at its own pace, also where the other has ended.
        sleep_ms(PAUSE);
    }
}

static void lie_idle(int fd, bool polls) {
    for (int64_t since = now_ms(); now_ms() - since < STILL; sleep_ms(PAUSE))
        if (took(fd, MSG_DONTWAIT)) since = now_ms();
    say("idle");
    for (;;) {
        if (polls) polled(fd, POLLIN, PATIENCE * 3);
        took(fd, polls ? MSG_DONTWAIT : 0);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 5);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[3]))};
    CHECK(inet_pton(AF_INET, argv[2], &at.sin_addr) == 1);
    bool client = !strcmp(argv[1], "client"), idle = !strcmp(argv[4], "idle"), either = !strcmp(argv[4], "either");
    bool only_reads = client && !strcmp(argv[4], "reader");
    CHECK(signal(SIGUSR1, end) != SIG_ERR);
    int fd;
    if (client) {
        fd = connect_to(&at);
    } else {
        int listener = listen_at(&at, 1);
        say("listening");
        fd = accept_from(listener);
        close(listener);
    }
    if (idle || only_reads || either) keeps_alive(fd);
    if (!idle && !only_reads) set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, TIMEOUT);
    warm_up(fd, client);
    talk(fd, !only_reads);
    lie_idle(fd, !client);
}
