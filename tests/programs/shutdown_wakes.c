// shutdown in one thread wakes another that sleeps in recv, poll or epoll_wait on the same socket. A look at the socket takes no time afterwards, although the other end has not read
// everything yet.
#include "check.h"

static int fd, set;

static void *sleep_in_recv(void *p) {
    *(long *)p = recv(fd, (char[1]){0}, 1, 0);
    return NULL;
}
static void *sleep_in_poll(void *p) {
    *(long *)p = polled(fd, POLLIN, PATIENCE) & POLLIN;
    return NULL;
}
static void *sleep_in_epoll(void *p) {
    *(long *)p = epolled(set, fd, PATIENCE) & EPOLLIN;
    return NULL;
}

enum { UNREAD = 1000, LOOKS = 300, LOOKS_TAKE = 3000 };

static void reads_late(int from) {
    hear();
    get_pattern(from, UNREAD, 1);
}

static void looks(void) {
    fd = with_peer(reads_late);
    put_pattern(fd, UNREAD, 1);
    IS(shutdown(fd, SHUT_RD), 0);
    int64_t begin = now_ms();
    for (int i = 0; i < LOOKS; i++) {
        CHECK(polled(fd, POLLIN, PATIENCE) & POLLIN);
        IS(recv(fd, (char[1]){0}, 1, MSG_DONTWAIT), 0);
    }
    CHECK(now_ms() - begin < LOOKS_TAKE);
    tell();
    peer_ends();
    close(fd);
    say("looked at");
}

static void peer(int to) { IS(recv(to, (char[1]){0}, 1, 0), 0); }

int main(void) {
    void *(*const ways[])(void *) = {sleep_in_recv, sleep_in_poll, sleep_in_epoll};
    const long expected[] = {0, POLLIN, EPOLLIN};
    for (int i = 0; i < 6; i++) {
        pthread_t thread;
        long result = -1;
        fd = with_peer(peer), set = epoll_create1(0);
        IS(epoll_add(set, fd, EPOLLIN), 0);
        IS(pthread_create(&thread, NULL, ways[i % 3], &result), 0);
        sleep_ms(100);
        IS(shutdown(fd, i < 3 ? SHUT_RDWR : SHUT_RD), 0);
        pthread_join(thread, NULL);
        IS(result, expected[i % 3]);
        IS(recv(fd, (char[1]){0}, 1, 0), 0);
        close(fd), close(set);
        peer_ends();
        say("woken");
    }
    looks();
}
