// What was sent before urgent data and is not read yet, perhaps in a ring: receives stop at the mark, begin behind it, and tell of it as on TCP; the byte out of
// line and in line, the other end in another process (awake, or stopped while urgent data is sent) or in this one. All that is seen is said, to be the same as on TCP.
#include "check.h"

enum { BEHIND, FIRST, BYTEWISE, WHOLE, PIECES, BARE, ALONE, MANY, SCRIPTS };
enum { APART, STOPPED, HERE };
static int script, in_line;

static void look(int fd) {
    int waiting = -1;
    IS(ioctl(fd, FIONREAD, &waiting), 0);
    int seen = polled(fd, POLLIN | POLLPRI, 0);
    say("  %s%s, %s the mark, %d counted", seen & POLLIN ? "in " : "", seen & POLLPRI ? "urgent" : "", sockatmark(fd) ? "at" : "not at", waiting);
}

static void get(int fd, const char *how, size_t n, int flags) {
    char text[100] = "";
    ssize_t got = recv(fd, text, n, flags | (flags & MSG_WAITALL ? 0 : MSG_DONTWAIT));
    say(" %s %zd %s", how, got, got < 0 ? strerror(errno) : text);
    look(fd);
}

static void read_all(int fd) {
    CHECK(polled(fd, POLLPRI, PATIENCE) == POLLPRI);
    look(fd);
    if (script == FIRST) get(fd, "urgent", 1, MSG_OOB);
    if (script == BYTEWISE) {
        get(fd, "peek", 90, MSG_PEEK);
        for (int i = 0; i < 3; i++) get(fd, "byte", 1, 0);
        get(fd, "peek", 90, MSG_PEEK);
        get(fd, "urgent peek", 1, MSG_PEEK | MSG_OOB);
        for (int i = 0; i < 4; i++) get(fd, "byte", 1, 0);
    }
    if (script == WHOLE) {
        get(fd, "peek whole", 6, MSG_PEEK | MSG_WAITALL);
        get(fd, "whole", 6, MSG_WAITALL);
        get(fd, "whole", 3, MSG_WAITALL);
    }
    if (script == PIECES) {
        char text[9] = "";
        struct iovec pieces[] = {{text, 2}, {text + 2, 2}, {text + 4, 4}};
        say(" pieces %zd %s", readv(fd, pieces, 3), text);
        look(fd);
    }
    get(fd, "all", 90, 0);
    // Read with the mark next: the byte is lost where nothing is behind it.
    if (script == ALONE) get(fd, "all", 90, 0);
    get(fd, "urgent", 1, MSG_OOB);
    get(fd, "all", 90, 0);
    get(fd, "all", 90, 0);
}

static void write_all(int fd) {
    if (script != BARE) IS(send(fd, "abc", 3, 0), 3);
    IS(send(fd, "D", 1, MSG_OOB), 1);
    if (script == MANY) {
        IS(send(fd, "ef", 2, 0), 2);
        IS(send(fd, "ghI", 3, MSG_OOB), 3);
    }
    if (script != ALONE) IS(send(fd, "jkl", 3, 0), 3);
}

static void reader(int fd) {
    IS(setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &in_line, sizeof in_line), 0);
    tell();
    hear();
    read_all(fd);
    tell();
    hear();
    warm_up(fd, true);
}

static void apart(bool stopped) {
    int fd = with_peer(reader), status;
    hear();
    if (stopped) {
        IS(kill(other, SIGSTOP), 0);
        IS(waitpid(other, &status, WUNTRACED), other);
    }
    write_all(fd);
    if (stopped) IS(kill(other, SIGCONT), 0);
    tell();
    hear();
    tell();
    warm_up(fd, false);
    peer_ends();
    close(fd);
}

static void here(void) {
    int ends[2];
    pair_here(ends);
    IS(setsockopt(ends[1], SOL_SOCKET, SO_OOBINLINE, &in_line, sizeof in_line), 0);
    write_all(ends[0]);
    read_all(ends[1]);
    warm_pair(ends[1], ends[0]);
    close(ends[0]), close(ends[1]);
}

int main(void) {
    static const char *const names[] = {"behind", "first", "bytewise", "whole", "pieces", "bare", "alone", "many"};
    static const char *const places[] = {"apart", "stopped", "here"};
    for (script = 0; script < SCRIPTS; script++) {
        for (int place = APART; place <= HERE; place++) {
            if (place == STOPPED && script != BEHIND && script != WHOLE) continue;
            for (in_line = 0; in_line < 2; in_line++) {
                say("%s, %s, %s line", names[script], places[place], in_line ? "in" : "out of");
                if (place == HERE) here();
                else apart(place == STOPPED);
            }
        }
    }
}
