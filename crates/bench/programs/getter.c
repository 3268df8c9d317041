// A memcached client: stores 1,000 values, then reads one every `pause-us` by a fixed timetable, and times each from its request to
// its last byte. A request that had to wait for the answer before it is timed from when it was due: slow answers hide no others.
#include "common.h"

enum { KEYS = 1000 };
static int64_t samples[1 << 16];

static int request(char *to, size_t room, const char *verb, unsigned key) { return snprintf(to, room, "%s key-%08u", verb, key); }

// Reads until `text` ends what came.
static void answer(int fd, char *buffer, size_t room, const char *text) {
    size_t length = strlen(text);
    for (size_t got = 0; got < length || memcmp(buffer + got - length, text, length);) {
        if (got == room) errno = EMSGSIZE, die("an answer of more than %zu bytes", room);
        ssize_t n = recv(fd, buffer + got, room - got, 0);
        if (n <= 0) die("memcached answers no more");
        got += (size_t)n;
    }
}

int main(int argc, char **argv) {
    struct options o = options_of(argc, argv);
    if (!o.pause_us || o.count > (long)(sizeof samples / sizeof *samples)) errno = EINVAL, die("--pause-us, and a smaller --count");
    int fd = connected(&o);
    size_t room = o.size + 256;
    char *out = malloc(room), *in = malloc(room);
    for (unsigned key = 0; key < KEYS; key++) {
        int n = request(out, room, "set", key);
        n += snprintf(out + n, room - (size_t)n, " 0 0 %zu\r\n", o.size);
        memset(out + n, 'v', o.size);
        memcpy(out + n + o.size, "\r\n", 2);
        send_all(fd, out, (size_t)n + o.size + 2);
        answer(fd, in, room, "STORED\r\n");
    }
    uint64_t random = 88172645463325252u, due = now_ns() + 1000000, begin = due, cpu = cpu_ns();
    for (long i = -o.warmup; i < o.count; i++, due += (uint64_t)o.pause_us * 1000) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        int n = request(out, room, "get", (unsigned)(random % KEYS));
        memcpy(out + n, "\r\n", 2);
        uint64_t now = now_ns(), from = now < due ? 0 : due;
        for (; now < due; now = now_ns()) pause_us((long)((due - now) / 1000) + 1);
        if (!from) from = now;
        send_all(fd, out, (size_t)n + 2);
        answer(fd, in, room, "END\r\n");
        if (i >= 0) samples[i] = (int64_t)(now_ns() - from) * 1000;
        else begin = due;
    }
    printf("result messages=%ld elapsed_ns=%llu cpu_ns=%llu", o.count, (unsigned long long)(now_ns() - begin), (unsigned long long)(cpu_ns() - cpu));
    print_quantiles(samples, (size_t)o.count);
    puts("\nend");
    return 0;
}
