// What programs ask a socket about: names, types, errors, TCP_INFO's state, after bytes have passed.
#include "check.h"

static void peer(int fd) {
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    IS(getsockname(fd, (void *)&name, &len), 0);
    CHECK(write(side, &name.sin_port, 2) == 2);
    hear();
}

static int option(int fd, int level, int name) {
    int value = -1;
    socklen_t len = sizeof value;
    IS(getsockopt(fd, level, name, &value, &len), 0);
    return value;
}

int main(void) {
    int fd = with_peer(peer), buffer = 100000, one = 1;
    uint16_t port;
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    struct tcp_info info;
    CHECK(read(side, &port, 2) == 2);
    IS(getpeername(fd, (void *)&name, &len), 0);
    IS(name.sin_port, port);
    IS(option(fd, SOL_SOCKET, SO_TYPE), SOCK_STREAM);
    IS(option(fd, SOL_SOCKET, SO_DOMAIN), AF_INET);
    IS(option(fd, SOL_SOCKET, SO_ERROR), 0);
    IS(option(fd, SOL_SOCKET, SO_ACCEPTCONN), 0);
    IS(option(fd, IPPROTO_TCP, TCP_NODELAY), 1);
    IS(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer), 0);
    IS(option(fd, SOL_SOCKET, SO_SNDBUF), 200000);
    IS(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one), 0);
    IS(option(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
    len = sizeof info;
    IS(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len), 0);
    IS(info.tcpi_state, TCP_ESTABLISHED);
    FAILS(setsockopt(fd, SOL_SOCKET, 9999, &one, sizeof one), ENOPROTOOPT);
    FAILS(listen(fd, 5), EINVAL);
    FAILS(connect(fd, (void *)&name, sizeof name), EISCONN);
    FAILS(accept(fd, NULL, NULL), EINVAL);
    tell();
    peer_ends();
    say("as the kernel has it");
}
