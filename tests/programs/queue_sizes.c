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

int main(void) {
    uint8_t text[600];
    int fd = with_peer(peer), n = -1;
    IS(ioctl(fd, FIONREAD, &n), 0);
    IS(n, 0);
    IS(queue_size(fd, SIOCOUTQ, 0), 0);
    tell();
    for (int i = 1; i <= 5; i++) {
        hear();
        IS(queue_size(fd, FIONREAD, 100 * i), 100 * i);
        tell();
    }
    IS(ioctl(fd, SIOCINQ, &n), 0);
    IS(n, 500);
    IS(recv(fd, text, 300, MSG_PEEK), 300);
    IS(queue_size(fd, FIONREAD, 500), 500);
    IS(recv(fd, text, 300, 0), 300);
    for (size_t i = 0; i < 3; i++) same(text + 100 * i, 0, 100, (int)i + 1);
    IS(queue_size(fd, FIONREAD, 200), 200);
    IS(recv(fd, text, 600, 0), 200);
    IS(queue_size(fd, FIONREAD, 0), 0);
    say("FIONREAD is exact");
    put_pattern(fd, 5000, 9);
    tell();
    hear();
    IS(queue_size(fd, SIOCOUTQ, 0), 0);
    say("SIOCOUTQ comes to 0");
    peer_ends();
}
