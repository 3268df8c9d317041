// The other process of a pair, which does with its lines, and with the pages of those who sleep on
// them, what it likes, past the library. It echoes with a server until a file is gone, says
// "attacks", goes on with that until a second file is gone, and closes its connection.
//
//   stranger ADDRESS PORT WAY FILE
//
// bits: sets every bit of every waiter, without end; sleeps: says that they sleep, wake or neither;
// silent: takes back that they sleep, and sends meanwhile; rings, urgent: bytes, and urgent ones,
// without end; fills: writes until there is no more room, and reads nothing; shuts, closes: its
// ends; rights: sends descriptors, or is refused.
#include "../include/check.h"
#include <stdatomic.h>
#include <sys/syscall.h>

enum { PAGE = 4096, RENDEZVOUS = 2 << 20, MEMBERS = 64 << 10, WAITER = 3, MOST = 4096 };

static const char *way;
static int lines[64], count;
static volatile uint64_t *memory;
static uint64_t words;
static uint64_t state = 88172645463325252u;

static uint64_t draw(void) { return state ^= state << 13, state ^= state >> 7, state ^= state << 17; }

static bool is(const char *name) { return !strcmp(way, name); }

static void find_lines(void) {
    int domain, type;
    for (int fd = 3; fd < 70000 && count < 64; fd++) {
        socklen_t length = sizeof domain;
        if (syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0 || domain != AF_UNIX) continue;
        length = sizeof type;
        if (syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM) lines[count++] = fd;
    }
    CHECK(count > 0);
}

static void find_memory(void) {
    char line[1024];
    uintptr_t from = 0, to = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps)) {
        if (strstr(line, "ginnel-pair")) CHECK(sscanf(line, "%lx-%lx", &from, &to) == 2);
    }
    fclose(maps);
    CHECK(from != 0);
    memory = (volatile uint64_t *)from, words = (to - from) / 8;
}

// Writes into the page of every waiter that there is.
static void into_pages(void) {
    static const uint64_t states[] = {0, 1, 2, 3, ~0ull, 1ull << 32};
    volatile uint64_t *owners = memory + (PAGE + RENDEZVOUS + MEMBERS) / 8;
    for (uint64_t page = 0; page < words * 8 / PAGE; page++) {
        volatile uint64_t *at = memory + page * (PAGE / 8);
        if ((owners[page] >> 57 & 15) != WAITER) continue;
        if (is("silent")) at[0] = 0;
        if (is("sleeps")) at[0] = states[draw() % 6];
        if (is("bits")) {
            for (int word = 8; word < PAGE / 8; word++) at[word] = ~0ull;
            at[0] = states[draw() % 6];
        }
    }
}

static ssize_t past(int fd, const void *from, size_t n, int flags) {
    return syscall(SYS_sendto, fd, from, n, flags | MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
}

static void send_rights(int fd) {
    char byte = 0, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(header), &(int){2}, sizeof(int));
    syscall(SYS_sendmsg, fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void attack(void) {
    static const char bytes[4096];
    if (is("bits") || is("sleeps") || is("silent")) return into_pages();
    for (int i = 0; i < count; i++) {
        if (is("rings")) past(lines[i], bytes, 50, 0);
        if (is("urgent")) past(lines[i], bytes, 1, MSG_OOB);
        if (is("fills")) while (past(lines[i], bytes, sizeof bytes, 0) > 0) {}
        if (is("rights")) send_rights(lines[i]);
        if (is("shuts")) syscall(SYS_shutdown, lines[i], (int)(draw() % 3));
        if (is("closes")) syscall(SYS_close, lines[i]);
    }
    if (is("closes")) count = 0;
}

static bool there(const char *file) { return access(file, F_OK) == 0; }

static void exchange(int fd, size_t n) {
    char bytes[1000] = {0};
    put_all(fd, bytes, n);
    get_all(fd, bytes, n);
}

int main(int argc, char **argv) {
    CHECK(argc == 5);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    CHECK(inet_pton(AF_INET, argv[1], &at.sin_addr) == 1);
    way = argv[3];
    char second[PATH_MAX];
    snprintf(second, sizeof second, "%s2", argv[4]);
    int fd = connect_to(&at);
    for (int i = 0; i < 40 || there(argv[4]); i++) exchange(fd, 1000), sleep_ms(5);
    // Both sleep on lines by now.
    for (int i = 0; i < 20; i++) exchange(fd, 1000), sleep_ms(20);
    find_lines();
    find_memory();
    say("attacks");
    for (int64_t last = now_ms(); there(second);) {
        attack();
        if (is("silent") && now_ms() - last > 100) {
            // Into the ring, most often; whoever sleeps there is not woken for it.
            CHECK(send(fd, second, 10, MSG_DONTWAIT | MSG_NOSIGNAL) > 0 || errno == EAGAIN);
            last = now_ms();
        }
        if (!is("bits") && !is("sleeps") && !is("silent")) usleep(50);
    }
    IS(close(fd), 0);
    say("closed");
}
