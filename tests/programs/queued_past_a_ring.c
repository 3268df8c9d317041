// FIONREAD counts what is unread also where it lies in a ring that the other end has entered and left, and behind that, before this end, which stood still meanwhile, came to it.
#include "check.h"

enum { PIECE = 300 };

static void peer(int fd) {
    for (int i = 0; i < ROUNDS; i++) get_pattern(fd, 16, i);
    tell(), hear();
    IS(kill(getppid(), SIGSTOP), 0);
    put_pattern(fd, 2 * PIECE, 1);
    IS(send(fd, "!", 1, MSG_OOB), 1);  // never by a ring
    put_pattern(fd, PIECE, 2);
    tell();
    IS(kill(getppid(), SIGCONT), 0);
}

int main(void) {
    for (int turn = 0; turn < 3; turn++) {
        char mark;
        int fd = with_peer_and(peer, false);
        IS(setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &(int){1}, sizeof(int)), 0);
        for (int i = 0; i < ROUNDS; i++) put_pattern(fd, 16, i), sleep_ms(1);
        hear(), tell(), hear();
        IS(queue_size(fd, FIONREAD, 3 * PIECE + 1), 3 * PIECE + 1);
        get_pattern(fd, 2 * PIECE, 1), get_all(fd, &mark, 1), get_pattern(fd, PIECE, 2);
        IS(mark, '!');
        peer_ends();
        close(fd);
        say("FIONREAD counted all");
    }
}
