// SO_RCVTIMEO ends a wait with EAGAIN, not before its time; data in time comes at once; a partial MSG_WAITALL is returned.
#include "check.h"

static void peer(int fd) {
    for (int i = 0; i < 3; i++) hear(), put_pattern(fd, 100, i);
    hear();
}

int main(void) {
    char text[200];
    int fd = with_peer(peer);
    struct timeval t = {0, 200000}, back = {9, 9};
    socklen_t len = sizeof back;
    IS(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t), 0);
    IS(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &back, &len), 0);
    CHECK(back.tv_sec == 0 && back.tv_usec == 200000);
    for (int i = 0; i < 2; i++) {
        int64_t start = now_ms();
        if (i) FAILS(read(fd, text, sizeof text), EAGAIN);
        else FAILS(recv(fd, text, sizeof text, 0), EAGAIN);
        CHECK(now_ms() - start >= 190);
        say("timed out");
    }
    tell();
    get_pattern(fd, 100, 0);
    tell();
    int64_t start = now_ms();
    IS(recv(fd, text, 200, MSG_WAITALL), 100);
    CHECK(now_ms() - start >= 190);
    say("MSG_WAITALL returned what had come");
    t.tv_usec = 0;
    IS(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t), 0);
    tell();
    get_pattern(fd, 100, 2);
    tell();
    peer_ends();
}
