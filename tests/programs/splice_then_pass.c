// One end splices into its socket behind much that is unread; the other hands its socket on before it reads.
#include "check.h"

static const int little = 4096;
static size_t sent;

static void *splicing(void *arg) {
    int fd = *(int *)arg, ends[2];
    uint8_t text[1000];
    IS(pipe(ends), 0);
    fill(text, sent, sizeof text, 1);
    IS(write(ends[1], text, sizeof text), sizeof text);
    close(ends[1]);
    for (size_t n = 0; n < sizeof text;) {
        ssize_t moved = splice(ends[0], NULL, fd, NULL, sizeof text - n, 0);
        CHECK(moved > 0);
        n += (size_t)moved;
    }
    close(ends[0]);
    return NULL;
}

static void peer(int fd) {
    uint8_t text[1000];
    pthread_t thread;
    // Of what a ring holds, the kernel takes but a part.
    IS(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &little, sizeof little), 0);
    for (ssize_t n;; sent += (size_t)n) {
        fill(text, sent, sizeof text, 1);
        if ((n = send(fd, text, sizeof text, MSG_DONTWAIT)) < 0) break;
    }
    CHECK(errno == EAGAIN);
    IS(pthread_create(&thread, NULL, splicing, &fd), 0);
    sleep_ms(50);
    tell();
    IS(pthread_join(thread, NULL), 0);
    IS(shutdown(fd, SHUT_WR), 0);
}

int main(void) {
    uint8_t text[500];
    size_t at = 0;
    int fd = with_peer(peer), sides[2];
    IS(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &little, sizeof little), 0);
    IS(socketpair(AF_UNIX, SOCK_STREAM, 0, sides), 0);
    hear();
    pass(sides[0], fd);
    for (ssize_t n; (n = recv(fd, text, sizeof text, 0)); at += (size_t)n) {
        CHECK(n > 0);
        same(text, at, (size_t)n, 1);
    }
    CHECK(at > 1000);
    say("all of it came");
    peer_ends();
}
