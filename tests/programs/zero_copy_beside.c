// MSG_ZEROCOPY by a thread and by a child, beside sends of another thread without it: one stream, and each such send is told of.
#include "check.h"

#include <linux/errqueue.h>

enum { PIECE = 20000, PIECES = 30 };

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static int fd, sent;

static void peer(int from) {
    for (int i = 0; i < 2 * PIECES; i++) get_pattern(from, PIECE, i);
    warm_up(from, true);
    for (int i = 0; i < PIECES; i++) get_pattern(from, PIECE, i + 100);
    char end;
    IS(recv(from, &end, 1, 0), 0);
}

// Its memory stays as it is: the kernel may read it for long.
static unsigned without_copy(int salt) {
    uint8_t *memory = malloc(PIECE);
    unsigned sends = 0;
    fill(memory, 0, PIECE, salt);
    for (size_t at = 0; at < PIECE; sends++) {
        ssize_t n = send(fd, memory + at, PIECE - at, MSG_ZEROCOPY);
        CHECK(n > 0);
        at += (size_t)n;
    }
    return sends;
}

static unsigned told;

static void *by_thread(void *none) {
    for (int i = 0; i < PIECES; i++) {
        pthread_mutex_lock(&turn);
        told += without_copy(sent++);
        pthread_mutex_unlock(&turn);
        if (i % 3 == 0) usleep(300);
    }
    return none;
}

int main(void) {
    fd = with_peer(peer);
    int one = 1;
    IS(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one), 0);
    pthread_t thread;
    IS(pthread_create(&thread, NULL, by_thread, NULL), 0);
    for (int i = 0; i < PIECES; i++) {
        pthread_mutex_lock(&turn);
        put_pattern(fd, PIECE, sent++);
        pthread_mutex_unlock(&turn);
        if (i % 5 == 0) usleep(300);
    }
    joined(thread);
    warm_up(fd, false);
    say("a thread's");
    int sends[2];
    IS(pipe(sends), 0);
    pid_t child = fork();
    if (child == 0) {
        unsigned count = 0;
        for (int i = 0; i < PIECES; i++) count += without_copy(i + 100);
        CHECK(write(sends[1], &count, sizeof count) == sizeof count);
        // Its memory is the kernel's until then.
        IS(shutdown(fd, SHUT_WR), 0);
        hear();
        _exit(0);
    }
    unsigned more, heard = 0;
    IS(read(sends[0], &more, sizeof more), (long)sizeof more);
    told += more;
    while (heard < told) {
        CHECK(polled(fd, 0, PATIENCE) & POLLERR);
        char control[200];
        struct msghdr message = {.msg_control = control, .msg_controllen = sizeof control};
        IS(recvmsg(fd, &message, MSG_ERRQUEUE), 0);
        struct sock_extended_err said;
        struct cmsghdr *first = CMSG_FIRSTHDR(&message);
        CHECK(first && first->cmsg_level == SOL_IP && first->cmsg_type == IP_RECVERR);
        memcpy(&said, CMSG_DATA(first), sizeof said);
        IS(said.ee_info, heard);
        heard = said.ee_data + 1;
    }
    IS(heard, told);
    say("a child's, and all were told of");
    IS(kill(child, SIGKILL), 0);
    ended(child);
    IS(close(fd), 0);
    peer_ends();
}
