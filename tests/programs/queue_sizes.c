// FIONREAD says what can be read, SIOCOUTQ what the other end has not got; both come to 0.
#include "check.h"

static void peer(int fd) {
    int n = -1;
    hear();
    for (int i = 1; i <= 5; i++) {
        put_pattern(fd, 100, i);
        tell();
        hear();
    }
    hear();
    get_pattern(fd, 5000, 9);
    IS(ioctl(fd, FIONREAD, &n), 0);
    IS(n, 0);
    tell();
}

static int until(int fd, unsigned long request, int expected) {
    int n = -1;
    for (int64_t end = now_ms() + PATIENCE; n != expected && now_ms() < end; sleep_ms(1)) IS(ioctl(fd, request, &n), 0);
    return n;
}

int main(void) {
    uint8_t text[600];
    int fd = with_peer(peer), n = -1;
    IS(ioctl(fd, FIONREAD, &n), 0);
    IS(n, 0);
    IS(until(fd, SIOCOUTQ, 0), 0);
    tell();
    for (int i = 1; i <= 5; i++) {
        hear();
        IS(until(fd, FIONREAD, 100 * i), 100 * i);
        tell();
    }
    IS(ioctl(fd, SIOCINQ, &n), 0);
    IS(n, 500);
    IS(recv(fd, text, 300, MSG_PEEK), 300);
    IS(until(fd, FIONREAD, 500), 500);
    IS(recv(fd, text, 300, 0), 300);
    for (size_t i = 0; i < 3; i++) same(text + 100 * i, 0, 100, (int)i + 1);
    IS(until(fd, FIONREAD, 200), 200);
    IS(recv(fd, text, 600, 0), 200);
    IS(until(fd, FIONREAD, 0), 0);
    say("FIONREAD is exact");
    put_pattern(fd, 5000, 9);
    tell();
    hear();
    IS(until(fd, SIOCOUTQ, 0), 0);
    say("SIOCOUTQ comes to 0");
    peer_ends();
}
