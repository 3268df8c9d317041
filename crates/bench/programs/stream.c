// A writer (client) sends as fast as it can, a reader (server) with a buffer of 256 KiB counts.
// The first eight bytes of each write are its number; the reader checks the first and last that each recv holds,
// and at the end tells the writer how many bytes it got.
#include "common.h"

enum { READ_BUFFER = 256 << 10, WARM_UP_SIZE = 64 };

static void check_stamp(const char *buffer, size_t n, uint64_t total, uint64_t number, size_t size) {
    uint64_t at = number * size, stamp;
    if (at < total || at + sizeof stamp > total + n) return; // not, or not whole, in this piece
    memcpy(&stamp, buffer + (at - total), sizeof stamp);
    if (stamp != number) errno = EPROTO, die("write %llu expected, %llu came", (unsigned long long)number, (unsigned long long)stamp);
}

static void reader(int fd, const struct options *o) {
    char small[WARM_UP_SIZE], *buffer = malloc(READ_BUFFER);
    memset(buffer, 1, READ_BUFFER);
    struct message m;
    uint64_t sequence = 1;
    do {
        recv_all(fd, small, sizeof small);
        m = checked(small, sizeof small, sequence++);
        send_all(fd, small, sizeof small);
    } while (m.kind != START);
    uint64_t total = 0, calls = 0, cpu = cpu_ns(), begin = now_ns();
    for (ssize_t n; (n = recv(fd, buffer, READ_BUFFER, 0)) != 0; calls++) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) die("recv");
        check_stamp(buffer, (size_t)n, total, (total + o->size - 1) / o->size, o->size);
        if (n >= 8) check_stamp(buffer, (size_t)n, total, (total + (uint64_t)n - 8) / o->size, o->size);
        total += (uint64_t)n;
    }
    uint64_t elapsed = now_ns() - begin;
    cpu = cpu_ns() - cpu;
    send_all(fd, (const char *)&total, sizeof total);
    printf("result bytes=%llu calls=%llu elapsed_ns=%llu cpu_ns=%llu bytes_per_s=%.0f\n", (unsigned long long)total,
           (unsigned long long)calls, (unsigned long long)elapsed, (unsigned long long)cpu,
           (double)total * 1e9 / (double)elapsed);
}

static void writer(int fd, const struct options *o) {
    char small[WARM_UP_SIZE], *buffer = malloc(o->size);
    memset(buffer, 1, o->size);
    for (long i = 0; i <= o->warmup; i++) {
        if (i < 100) pause_us(100);
        fill(small, sizeof small, (uint64_t)i + 1, 0, i == o->warmup ? START : WARM_UP);
        send_all(fd, small, sizeof small);
        recv_all(fd, small, sizeof small);
        checked(small, sizeof small, (uint64_t)i + 1);
    }
    uint64_t between = o->size < 65536 ? 65536 / o->size : 1; // writes between looks at the clock
    uint64_t limit = o->bytes ? ((uint64_t)o->bytes + o->size - 1) / o->size : UINT64_MAX;
    uint64_t cpu = cpu_ns(), begin = now_ns(), end = begin + (uint64_t)(o->seconds * 1e9), number = 0;
    for (; number < limit; number++) {
        if (!o->bytes && number % between == 0 && now_ns() >= end) break;
        memcpy(buffer, &number, sizeof number);
        send_all(fd, buffer, o->size);
    }
    uint64_t elapsed = now_ns() - begin, arrived = 0;
    if (shutdown(fd, SHUT_WR) < 0) die("shutdown");
    recv_all(fd, (char *)&arrived, sizeof arrived);
    if (arrived != number * o->size)
        errno = EPROTO, die("%llu bytes sent, %llu arrived", (unsigned long long)(number * o->size), (unsigned long long)arrived);
    printf("result messages=%llu elapsed_ns=%llu cpu_ns=%llu\n", (unsigned long long)number,
           (unsigned long long)elapsed, (unsigned long long)(cpu_ns() - cpu));
}

int main(int argc, char **argv) {
    struct options o = options_of(argc, argv);
    if (o.size < sizeof(uint64_t)) die("writes of at least 8 bytes");
    int fd = one_connection(&o);
    if (strcmp(o.role, "server")) writer(fd, &o);
    else reader(fd, &o);
    puts("end");
    return 0;
}
