// What the shim costs where nothing comes of it: a server's part of an exchange, of a page, and of a connection of one request, while the other end is out of the shim's reach. Both ends are in this one
// process, so that nothing else is measured; the client's makes its system calls itself, and is not counted. How it is built, run and read: docs/cost.md.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "../../../tests/programs/include/raw.h"
#include <sys/syscall.h>

enum { CONNECTIONS = 50, AT_ONCE = 8, TURNS = 100, BRIEF = 300, REQUEST = 40, ANSWER = 1000, MOST = 10000 };

#define CHECK(condition) ((condition) ? (void)0 : (perror(#condition), exit(1)))

static struct sockaddr_in address;
static int listener, one = 1;
static char page_path[] = "/tmp/ginnel-page-XXXXXX";
static char bytes[1024];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int client(void) {
    int fd = (int)raw_call(SYS_socket, AF_INET, SOCK_STREAM, 0, 0, 0);
    CHECK(fd >= 0 && raw_call(SYS_connect, fd, (long)&address, sizeof address, 0, 0) == 0);
    return fd;
}

static int accepted(int set) {
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    CHECK(fd >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    return fd;
}

// Connections that stay, and the set that they are in.
typedef struct {
    int clients[CONNECTIONS], set;
} Kept;

static void keep(Kept *kept) {
    kept->set = epoll_create1(0);
    for (int i = 0; i < CONNECTIONS; i++) {
        kept->clients[i] = client();
        int fd = accepted(kept->set);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
}

// Nanoseconds for one request on connections that stay: a share of an epoll_wait, and what serving it takes.
static double request(Kept *kept, void (*serve)(int fd)) {
    double total = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        struct epoll_event events[CONNECTIONS];
        const int *asking = kept->clients;
        for (int i = 0; i < AT_ONCE; i++) raw_call(SYS_write, asking[(turn * AT_ONCE + i) % CONNECTIONS], (long)bytes, REQUEST, 0, 0);
        double start = now();
        for (int answered = 0; answered < AT_ONCE;) {
            int n = epoll_wait(kept->set, events, CONNECTIONS, 100);
            for (int i = 0; i < n; i++) serve(events[i].data.fd), answered++;
        }
        total += now() - start;
        for (int i = 0; i < AT_ONCE; i++) {
            int fd = asking[(turn * AT_ONCE + i) % CONNECTIONS];
            while (raw_call(SYS_recvfrom, fd, (long)bytes, sizeof bytes, MSG_DONTWAIT, 0) > 0) {}
        }
    }
    return total / (TURNS * AT_ONCE);
}

static void answer(int fd) {
    ssize_t got = read(fd, bytes, sizeof bytes);
    CHECK(got > 0 && write(fd, bytes, (size_t)got) == got);
}

// As a web server does that finds its pages anew for each request.
static void serve_page(int fd) {
    struct stat page;
    int file, off = 0;
    CHECK(recv(fd, bytes, sizeof bytes, 0) == REQUEST);
    CHECK((file = open(page_path, O_RDONLY)) >= 0 && fstat(file, &page) == 0);
    setsockopt(fd, IPPROTO_TCP, TCP_CORK, &one, sizeof one);
    CHECK(writev(fd, &(struct iovec){.iov_base = bytes, .iov_len = REQUEST}, 1) == REQUEST);
    CHECK(sendfile(fd, file, NULL, (size_t)page.st_size) == page.st_size);
    setsockopt(fd, IPPROTO_TCP, TCP_CORK, &off, sizeof off);
    close(file);
    CHECK(recv(fd, bytes, sizeof bytes, 0) < 0 && errno == EAGAIN);
}

// Nanoseconds for a connection of one request, as a web server serves it: accept, register, wait, read, cork, head, body, close.
static double brief(void) {
    static int set = -1;
    if (set < 0) set = epoll_create1(0);
    double total = 0;
    for (int i = 0; i < BRIEF; i++) {
        struct epoll_event event;
        int other = client();
        raw_call(SYS_write, other, (long)bytes, REQUEST, 0, 0);
        double start = now();
        int fd = accepted(set);
        CHECK(epoll_wait(set, &event, 1, 100) == 1 && read(fd, bytes, sizeof bytes) == REQUEST);
        setsockopt(fd, IPPROTO_TCP, TCP_CORK, &one, sizeof one);
        CHECK(write(fd, bytes, REQUEST) == REQUEST && write(fd, bytes, ANSWER) == ANSWER);
        close(fd);
        total += now() - start;
        raw_call(SYS_close, other, 0, 0, 0, 0);
    }
    return total / BRIEF;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void tell(const char *what, double *samples, int n) {
    qsort(samples, (size_t)n, sizeof *samples, by_size);
    printf("%s: a tenth of the samples below %.0f ns, half below %.0f ns\n", what, samples[n / 10], samples[n / 2]);
}

int main(int argc, char **argv) {
    static double exchanges[MOST], pages[MOST], briefs[MOST];
    static Kept echoing, serving;
    int samples = argc > 1 ? atoi(argv[1]) : 100;
    CHECK(samples > 0 && samples <= MOST);
    socklen_t len = sizeof address;
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, (void *)&address, len) == 0 && listen(listener, 128) == 0);
    CHECK(getsockname(listener, (void *)&address, &len) == 0);
    int page = mkstemp(page_path);
    CHECK(page >= 0 && write(page, bytes, ANSWER) == ANSWER && close(page) == 0);
    keep(&echoing);
    keep(&serving);
    for (int i = 0; i < samples; i++) exchanges[i] = request(&echoing, answer), pages[i] = request(&serving, serve_page), briefs[i] = brief();
    unlink(page_path);
    tell("exchange", exchanges, samples);
    tell("page", pages, samples);
    tell("connection of one request", briefs, samples);
}
