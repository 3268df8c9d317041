// The server of the usual kind: root, with a connection, forks a worker, which becomes nobody ("changed") or stays who it is ("kept"). Taken over, the worker looks for the ledger that it had from
// its parent, and says there that the parent's rings lie in other memory of the parent's: some at the very place of a target, for every alignment that a ring may have.
//
//     worker_attacks changed|kept
//
// Then the parent sends and receives. It may lose the connection; its own memory is as it was.
#include "../include/check.h"
#include <grp.h>

enum { SLOTS = 73728, SLOT = 1024, COUNT = 32768, TX = 256, RX = 448 };

static volatile char __attribute__((aligned(4096))) target[4096];

static void echo(int fd) {
    char text[64];
    for (ssize_t n; (n = read(fd, text, sizeof text)) > 0;) put_all(fd, text, (size_t)n);
}

static volatile uint64_t *at(char *slot, size_t offset) { return (volatile uint64_t *)(slot + offset); }

static void attack(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[600], *ledger = NULL, *segment = NULL;
    CHECK(maps);
    while (fgets(line, sizeof line, maps)) {
        char *start = (char *)strtoul(line, NULL, 16);
        if (!ledger && strstr(line, "sockets-") && strstr(line, "rw-s")) ledger = start;
        if (!segment && strstr(line, "/default") && strstr(line, "rw-s")) segment = start;
    }
    fclose(maps);
    if (!ledger || !segment) return say("worker: no map");
    for (int i = 0; i < COUNT; i++) {
        char *slot = ledger + SLOTS + (size_t)i * SLOT;
        if (!*at(slot, 0)) continue;
        uint64_t away = (uint64_t)target - (uint64_t)segment, size = *at(slot, TX + 48), tail = *at(slot, TX + 16), start = *at(slot, TX + 32);
        *at(slot, TX + 40) = away - ((tail - start) & (size - 1));
        *at(slot, TX + 72) = away;
        size = *at(slot, RX + 40), tail = *at(slot, RX + 16), start = *at(slot, RX + 24);
        *at(slot, RX + 32) = away - ((tail - start) & (size - 1));
    }
    say("worker: rings moved");
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    for (size_t i = 0; i < sizeof target; i++) target[i] = (char)pattern(i, 5);
    int fd = with_peer(echo);
    for (int i = 0; i < 300; i++) {
        char text[11];
        put_all(fd, "hello world", 11), get_all(fd, text, 11);
        if (i % 20 == 0) sleep_ms(1);
    }
    pid_t worker = fork();
    if (worker == 0) {
        close(fd);
        if (!strcmp(argv[1], "changed")) CHECK(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
        attack();
        _exit(0);
    }
    IS(ended(worker), 0);
    struct timeval limit = {.tv_sec = 2};
    IS(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    for (int i = 0; i < 20; i++) {
        char text[11];
        if (send(fd, "OVERWRITTEN", 11, MSG_NOSIGNAL) < 0 || recv(fd, text, sizeof text, 0) <= 0) break;
        for (size_t k = 0; k < sizeof text; k++) CHECK(strchr("OVERWRITTEN", text[k]));
    }
    for (size_t i = 0; i < sizeof target; i++) CHECK(target[i] == (char)pattern(i, 5));
    say("untouched");
    close(fd), close(side);
    while (waitpid(other, NULL, 0) < 0) CHECK(errno == EINTR);
    return 0;
}
