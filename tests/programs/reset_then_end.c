// A reset is told once. Every receive after it says end of file, also where a program asks again and again without waiting.
#include "check.h"

static void resets(int fd) {
    sleep_ms(50);
    struct linger zero = {1, 0};
    IS(setsockopt(fd, SOL_SOCKET, SO_LINGER, &zero, sizeof zero), 0);
    close(fd);
}

int main(void) {
    int fd = with_peer(resets);
    char bytes[8];
    int64_t end = now_ms() + PATIENCE;
    ssize_t n;
    do n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    while (n < 0 && errno == EAGAIN && now_ms() < end);
    CHECK(n < 0 && errno == ECONNRESET);
    for (int i = 0; i < 6; i++) IS(recv(fd, bytes, i % 2 ? sizeof bytes : 0, i % 3 ? MSG_DONTWAIT : 0), 0);
    close(fd);
    peer_ends();
    say("reset, and then the end");
}
