// A listener's cork is that of the connections it accepts, also after an exec, and one from before connect lasts: streams in pieces that fill no segment arrive in order, and the option reads as it was set. Under
// the shim they move into rings.
#include "check.h"

enum { PIECE = 20000, TIMES = 4000 };

static int is_corked(int fd) {
    int on = -1;
    IS(getsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, &(socklen_t){sizeof on}), 0);
    return on;
}

static void stream(int fd) {
    static char piece[PIECE];
    IS(is_corked(fd), 1);
    for (int i = 0; i < TIMES; i++) {
        memset(piece, i, PIECE);
        IS(send(fd, piece, PIECE, MSG_NOSIGNAL), PIECE);
    }
    IS(is_corked(fd), 1);
    IS(shutdown(fd, SHUT_WR), 0);
}

static void check_stream(int fd) {
    static char piece[PIECE];
    for (int i = 0; i < TIMES; i++) {
        IS(recv(fd, piece, PIECE, MSG_WAITALL), PIECE);
        IS(piece[0], (char)i);
        IS(piece[PIECE - 1], (char)i);
    }
    IS(recv(fd, piece, 1, 0), 0);
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "--accept") == 0) {
        stream(accept_from(atoi(argv[2])));
        return 0;
    }
    struct sockaddr_in at;
    int listener = listen_on(&at), on = 1;
    IS(setsockopt(listener, IPPROTO_TCP, TCP_CORK, &on, sizeof on), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        IS(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on), 0);
        IS(connect(fd, (void *)&at, sizeof at), 0);
        check_stream(fd);
        stream(fd);
        exit(0);
    }
    int fd = accept_from(listener);
    stream(fd);
    say("streamed");
    check_stream(fd);
    IS(ended(child), 0);
    say("and back");
    // The listener's next owner knows of the cork only what the kernel says.
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char number[12];
        snprintf(number, sizeof number, "%d", listener);
        execl("/proc/self/exe", argv[0], "--accept", number, NULL);
        _exit(1);
    }
    fd = connect_to(&at);
    check_stream(fd);
    IS(ended(child), 0);
    say("and after an exec");
}
