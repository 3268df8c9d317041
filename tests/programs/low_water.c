// SO_RCVLOWAT: readiness and blocking reads wait for so many bytes, or the end; MSG_DONTWAIT and the value set back do not. A listener hands it on, one that came over exec too.
#include "check.h"

static void peer(int fd) {
    hear(), put_pattern(fd, 50, 1);
    hear();
    uint8_t text[60];
    fill(text, 50, 60, 1);
    put_all(fd, text, 60);
    hear(), put_pattern(fd, 20, 2);
    IS(shutdown(fd, SHUT_WR), 0);
}

static void of_a_listener(int listener, const char *whose) {
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    IS(getsockname(listener, (void *)&at, &len), 0);
    int fd = connect_to(&at), end = accept_from(listener);
    for (int i = 0; i < ROUNDS; i++) {
        put_pattern(fd, 99, i);
        IS(polled(end, POLLIN, i < 3 ? 20 : 0), 0);
        put_pattern(fd, 1, i);
        when_readable(end);
        char text[200];
        IS(recv(end, text, sizeof text, 0), 100);
        put_pattern(end, 16, i), get_pattern(fd, 16, i);
    }
    close(fd), close(end);
    say("as its listener says: %s", whose);
}

int main(int argc, char **argv) {
    if (argc == 3) {
        of_a_listener(atoi(argv[2]), "one that came over exec");
        return 0;
    }
    uint8_t text[300];
    int fd = with_peer(peer), low = 100, back = 0, set = epoll_create1(0), n;
    socklen_t len = sizeof back;
    IS(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low), 0);
    IS(getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &back, &len), 0);
    IS(back, 100);
    IS(epoll_add(set, fd, EPOLLIN), 0);
    tell();
    for (n = 0; n < 50;) IS(ioctl(fd, FIONREAD, &n), 0);
    IS(polled(fd, POLLIN, 100), 0);
    IS(epolled(set, fd, 100), 0);
    say("50 bytes are too few");
    tell();
    IS(epolled(set, fd, PATIENCE), EPOLLIN);
    IS(polled(fd, POLLIN, 0), POLLIN);
    IS(recv(fd, text, 300, 0), 110);
    same(text, 0, 110, 1);
    say("110 are enough");
    tell();
    CHECK(epolled(set, fd, PATIENCE) & EPOLLIN);
    IS(recv(fd, text, 300, 0), 20);
    same(text, 0, 20, 2);
    IS(recv(fd, text, 300, 0), 0);
    say("20 are enough at the end");
    peer_ends();
    struct sockaddr_in at;
    int listener = listen_on(&at);
    IS(setsockopt(listener, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low), 0);
    of_a_listener(listener, "one of this program");
    char number[16];
    snprintf(number, sizeof number, "%d", listener);
    execl("/proc/self/exe", argv[0], "--again", number, NULL);
    return 9;
}
