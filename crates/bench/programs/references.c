// What a transport is measured against: two processes that share memory, with nothing between.
//   limit        ping-pong in one cache line: 48 B of payload beside the sequence word
//   ring         ping-pong of `size` bytes through two hand-written rings of 1 MiB
//   ring-locked  the same, where several threads may use each end, and who waits may be asleep: a lock at each end, a full fence before the writer looks
//   ring-stream  one ring, writes of `size` bytes, a reader with a buffer of 256 KiB
//   ring-rate    one ring, messages of `size` bytes, each written and read by itself
//   ring-both    two rings, both processes write and read as they can, one thread each
//   copy         no second process: one core copies pieces of `size` bytes to and fro in 8 MiB, which its second cache does not hold and the third does
//   futex        ping-pong by futex wake, with pauses so that each receiver is asleep, or without
//   changes      `connections` processes on one processor that do nothing but give way to each other: changes of processes
#include "common.h"
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { RING_SIZE = 1 << 20, READ_BUFFER = 256 << 10, MOST_SAMPLES = 1 << 18, PAYLOAD = 48 };

struct line {
    _Atomic uint64_t sequence;
    char payload[PAYLOAD];
} __attribute__((aligned(64)));

struct ring {
    _Alignas(128) _Atomic uint64_t tail; // bytes ever written
    _Alignas(128) _Atomic uint64_t head; // bytes ever read
    _Alignas(128) _Atomic uint64_t sleeps; // ring-locked: is the reader asleep? It never is
    _Alignas(128) char data[RING_SIZE];
};

struct wake {
    _Alignas(128) _Atomic uint32_t word;
    uint64_t stamp_ns;
};

static struct shared {
    struct line line;
    struct wake wakes[2];
    _Atomic size_t taken[2];
    uint64_t cpu[2];
    uint64_t bytes, elapsed;
    _Atomic uint64_t changes;
    _Atomic uint64_t received; // of both processes
    int64_t samples[2][MOST_SAMPLES]; // picoseconds, by process
    struct ring rings[2];
} *shared;
static struct options o;

static void sample(int self, int64_t picoseconds) {
    size_t n = atomic_load_explicit(&shared->taken[self], memory_order_relaxed);
    if (n == MOST_SAMPLES) return;
    shared->samples[self][n] = picoseconds;
    atomic_store_explicit(&shared->taken[self], n + 1, memory_order_relaxed);
}

// Each process does this in turn: its message number `turn` (1, 2, 3 ... for both) is sent or awaited.
struct pingpong {
    void (*send)(int self, uint64_t turn);
    void (*receive)(int self, uint64_t turn);
};

static void limit_send(int self, uint64_t turn) {
    (void)self;
    char payload[PAYLOAD];
    memset(payload, (char)turn, sizeof payload);
    memcpy(shared->line.payload, payload, sizeof payload);
    atomic_store_explicit(&shared->line.sequence, turn, memory_order_release);
}

static void limit_receive(int self, uint64_t turn) {
    (void)self;
    char payload[PAYLOAD];
    while (atomic_load_explicit(&shared->line.sequence, memory_order_acquire) < turn) {}
    memcpy(payload, shared->line.payload, sizeof payload);
    __asm__ volatile("" : : "r"(payload) : "memory"); // all of it is read
    if (payload[PAYLOAD - 1] != (char)turn) errno = EPROTO, die("turn %llu", (unsigned long long)turn);
}

// Each process's own copy of the other's index, looked up again only when it does not suffice.
static uint64_t head_seen, tail_seen;

static void ring_write(struct ring *r, const char *from, size_t n) {
    uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    while (tail + n - head_seen > RING_SIZE) head_seen = atomic_load_explicit(&r->head, memory_order_acquire);
    size_t at = tail % RING_SIZE, first = n < RING_SIZE - at ? n : RING_SIZE - at;
    memcpy(r->data + at, from, first);
    if (n > first) memcpy(r->data, from + first, n - first);
    atomic_store_explicit(&r->tail, tail + n, memory_order_release);
}

static size_t ring_read(struct ring *r, char *to, size_t most) {
    uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    // The pause keeps the reader from taking the line away between two small writes.
    while ((tail_seen = atomic_load_explicit(&r->tail, memory_order_acquire)) == head) __builtin_ia32_pause();
    size_t n = tail_seen - head < most ? tail_seen - head : most;
    size_t at = head % RING_SIZE, first = n < RING_SIZE - at ? n : RING_SIZE - at;
    memcpy(to, r->data + at, first);
    if (n > first) memcpy(to + first, r->data, n - first);
    atomic_store_explicit(&r->head, head + n, memory_order_release);
    return n;
}

static char buffer[READ_BUFFER];

static void ring_send(int self, uint64_t turn) {
    fill(buffer, o.size, turn, 0, MEASURE);
    ring_write(&shared->rings[self], buffer, o.size);
}

static void ring_receive(int self, uint64_t turn) {
    for (size_t got = 0; got < o.size;) got += ring_read(&shared->rings[!self], buffer + got, o.size - got);
    checked(buffer, o.size, turn);
}

// Of this process, as those of a socket are: of its sender and of its receiver.
static _Alignas(64) _Atomic uint64_t send_lock, receive_lock;

static void lock(_Atomic uint64_t *l) {
    for (uint64_t open = 0; !atomic_compare_exchange_strong_explicit(l, &open, 1, memory_order_acquire, memory_order_relaxed); open = 0) {}
}

static void unlock(_Atomic uint64_t *l) {
    atomic_store_explicit(l, 0, memory_order_release);
}

static void ring_locked_send(int self, uint64_t turn) {
    lock(&send_lock);
    ring_send(self, turn);
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&shared->rings[self].sleeps, memory_order_relaxed)) die("nobody sleeps here");
    unlock(&send_lock);
}

static void ring_locked_receive(int self, uint64_t turn) {
    struct ring *r = &shared->rings[!self];
    uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    while (atomic_load_explicit(&r->tail, memory_order_acquire) == head) __builtin_ia32_pause();
    lock(&receive_lock);
    ring_receive(self, turn);
    unlock(&receive_lock);
}

static void futex_send(int self, uint64_t turn) {
    struct wake *w = &shared->wakes[self];
    if (o.pause_us) pause_us(o.pause_us);
    w->stamp_ns = o.pause_us ? now_ns() : 0;
    atomic_store_explicit(&w->word, (uint32_t)turn, memory_order_release);
    syscall(SYS_futex, &w->word, FUTEX_WAKE, 1, 0, 0, 0);
}

static void futex_receive(int self, uint64_t turn) {
    struct wake *w = &shared->wakes[!self];
    for (uint32_t seen; (seen = atomic_load_explicit(&w->word, memory_order_acquire)) != (uint32_t)turn;)
        syscall(SYS_futex, &w->word, FUTEX_WAIT, seen, 0, 0, 0);
    if (o.pause_us) sample(self, (now_ns() - w->stamp_ns) * 1000);
}

static const struct pingpong limit = {limit_send, limit_receive}, ring = {ring_send, ring_receive},
                             ring_locked = {ring_locked_send, ring_locked_receive}, futex = {futex_send, futex_receive};

// Process 0 sends the odd turns and process 1 the even ones, until process 0 says that it is enough.
static _Atomic uint64_t *last_turn;

static void play(int self, const struct pingpong *p) {
    uint64_t begin = now_ns(), end = begin + (uint64_t)(o.seconds * 1e9), last = begin;
    if (self == 1) {
        for (uint64_t turn = 1;; turn += 2) {
            p->receive(1, turn);
            p->send(1, turn + 1);
            if (atomic_load_explicit(last_turn, memory_order_relaxed) == turn) return;
        }
    }
    uint64_t warm = o.pause_us ? 4 : 1000;
    for (uint64_t i = 0, turn = 1;; i++, turn += 2) {
        int enough = o.pause_us ? (long)i == o.count : last >= end && i % (uint64_t)o.batch == 0 && i > warm;
        if (enough) atomic_store_explicit(last_turn, turn, memory_order_relaxed);
        p->send(0, turn);
        p->receive(0, turn + 1);
        if (enough) return;
        if (!o.pause_us && (i + 1) % (uint64_t)o.batch == 0) {
            uint64_t now = now_ns();
            if (i > warm) sample(0, (now - last) * 1000 / (2 * (uint64_t)o.batch));
            last = now;
        }
    }
}

static void stream(int self) {
    static char from[READ_BUFFER];
    struct ring *r = &shared->rings[0];
    memset(buffer, 1, sizeof buffer);
    memset(from, 1, sizeof from);
    uint64_t begin = now_ns();
    if (self == 0) {
        uint64_t end = begin + (uint64_t)(o.seconds * 1e9), between = o.size < 65536 ? 65536 / o.size : 1, number = 0;
        for (;; number++) {
            int last = number % between == 0 && now_ns() >= end;
            uint64_t stamp = last ? UINT64_MAX : number;
            memcpy(from, &stamp, sizeof stamp);
            ring_write(r, from, o.size);
            if (last) return;
        }
    }
    // Writes are whole in the ring, and its size is a multiple of theirs: a piece starts with a stamp.
    for (uint64_t total = 0;;) {
        size_t n = ring_read(r, buffer, READ_BUFFER);
        uint64_t stamp, last;
        memcpy(&stamp, buffer, sizeof stamp);
        memcpy(&last, buffer + n - o.size, sizeof last);
        if (n > o.size && stamp != total / o.size) errno = EPROTO, die("write %llu", (unsigned long long)stamp);
        total += n;
        if (last != UINT64_MAX && last != total / o.size - 1) errno = EPROTO, die("write %llu", (unsigned long long)last);
        if (last == UINT64_MAX) {
            shared->bytes = total;
            shared->elapsed = now_ns() - begin;
            return;
        }
    }
}

// Messages one by one: each is written, and read, by itself.
static void rate(int self) {
    struct ring *r = &shared->rings[0];
    memset(buffer, 1, sizeof buffer);
    if (self == 0) {
        for (uint64_t end = now_ns() + (uint64_t)(o.seconds * 1e9); now_ns() < end;)
            for (int i = 0; i < 1024; i++) ring_write(r, buffer, o.size);
        buffer[0] = 0; // the last
        ring_write(r, buffer, o.size);
        return;
    }
    uint64_t begin = 0, bytes = 0, head = 0, tail = 0;
    for (buffer[0] = 1; buffer[0]; bytes += o.size) {
        while (tail - head < o.size) tail = atomic_load_explicit(&r->tail, memory_order_acquire);
        if (!begin) begin = now_ns();
        memcpy(buffer, r->data + head % RING_SIZE, o.size); // its size divides the ring's
        __asm__ volatile("" : : "r"(buffer) : "memory"); // all of it is read
        atomic_store_explicit(&r->head, head += o.size, memory_order_release);
    }
    shared->bytes = bytes;
    shared->elapsed = now_ns() - begin;
}

// As much as there is room for, of a write of `size` bytes.
static size_t ring_write_some(struct ring *r, const char *from, size_t n) {
    uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    if (tail + n - head_seen > RING_SIZE) head_seen = atomic_load_explicit(&r->head, memory_order_acquire);
    size_t room = RING_SIZE - (size_t)(tail - head_seen);
    if (n > room) n = room;
    if (n) ring_write(r, from, n);
    return n;
}

static size_t ring_read_some(struct ring *r, char *to, size_t most) {
    if (atomic_load_explicit(&r->tail, memory_order_acquire) == atomic_load_explicit(&r->head, memory_order_relaxed)) return 0;
    return ring_read(r, to, most);
}

static void both(int self) {
    static char from[READ_BUFFER];
    memset(buffer, 1, sizeof buffer);
    memset(from, 1, sizeof from);
    uint64_t begin = now_ns(), end = begin + (uint64_t)(o.seconds * 1e9), received = 0;
    for (uint64_t i = 0; i % 16 || now_ns() < end; i++) {
        ring_write_some(&shared->rings[self], from, o.size);
        received += ring_read_some(&shared->rings[!self], buffer, o.size);
    }
    atomic_fetch_add(&shared->received, received);
    if (self == 0) shared->elapsed = now_ns() - begin;
}

// memcpy as the C library has it: what a program would do.
static void copy(int self) {
    enum { HALF = 4 << 20 };
    if (self == 1) return;
    char *memory = malloc(2 * HALF);
    memset(memory, 1, 2 * HALF);
    uint64_t begin = now_ns(), end = begin + (uint64_t)(o.seconds * 1e9), bytes = 0;
    for (size_t at = 0; at || now_ns() < end; at = (at + o.size) % HALF) {
        memcpy(memory + HALF + at, memory + at, o.size);
        __asm__ volatile("" : : "r"(memory) : "memory");
        bytes += o.size;
    }
    shared->bytes = bytes;
    shared->elapsed = now_ns() - begin;
}

// Counted by all of them from a moment on at which all should be there: a fork takes less than a millisecond.
static int changes(void) {
    uint64_t begin = now_ns() + 20000000, end = begin + (uint64_t)(o.seconds * 1e9), count = 0;
    pid_t child = 1;
    for (int others = 1; child && others < o.connections; others++) {
        if ((child = fork()) < 0) die("fork");
        if (!child) prctl(PR_SET_PDEATHSIG, SIGKILL); // not inherited
    }
    while (now_ns() < begin) sched_yield();
    for (; now_ns() < end; count++) sched_yield();
    atomic_fetch_add(&shared->changes, count);
    if (!child) _exit(0);
    for (int status; wait(&status) > 0;)
        if (status) die("another process ended with %d", status);
    printf("result messages=%llu elapsed_ns=%llu\nend\n", (unsigned long long)shared->changes, (unsigned long long)(end - begin));
    return 0;
}

static void run(int self) {
    pin(self ? o.peer_cpu : o.cpu);
    uint64_t cpu = cpu_ns();
    if (!strcmp(o.role, "limit")) play(self, &limit);
    else if (!strcmp(o.role, "ring")) play(self, &ring);
    else if (!strcmp(o.role, "ring-locked")) play(self, &ring_locked);
    else if (!strcmp(o.role, "futex")) play(self, &futex);
    else if (!strcmp(o.role, "ring-stream")) stream(self);
    else if (!strcmp(o.role, "ring-rate")) rate(self);
    else if (!strcmp(o.role, "ring-both")) both(self);
    else if (!strcmp(o.role, "copy")) copy(self);
    else die("unknown reference %s", o.role);
    shared->cpu[self] = cpu_ns() - cpu;
}

int main(int argc, char **argv) {
    o = options_of(argc, argv);
    // No reference, but what disturbs: a process that wants its processor all the time, until it is killed.
    if (!strcmp(o.role, "busy")) {
        puts("busy now");
        fflush(stdout);
        for (volatile uint64_t turns = 0;; turns++) {}
    }
    if (o.size < sizeof(struct message) || o.size > READ_BUFFER || READ_BUFFER % o.size) die("size %zu", o.size);
    shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (shared == MAP_FAILED) die("mmap");
    if (!strcmp(o.role, "changes")) return changes();
    last_turn = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (last_turn == MAP_FAILED) die("mmap");
    pid_t child = fork();
    if (child < 0) die("fork");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); // not inherited
        run(1);
        _exit(0);
    }
    run(0);
    int status;
    if (waitpid(child, &status, 0) < 0 || status != 0) die("the other process ended with %d", status);
    printf("result cpu_ns=%llu", (unsigned long long)(shared->cpu[0] + shared->cpu[1]));
    if (shared->received) shared->bytes = shared->received;
    if (shared->bytes)
        printf(" bytes=%llu elapsed_ns=%llu bytes_per_s=%.0f", (unsigned long long)shared->bytes,
               (unsigned long long)shared->elapsed, (double)shared->bytes * 1e9 / (double)shared->elapsed);
    // Both processes' samples, side by side in memory.
    size_t n = shared->taken[0];
    memmove(shared->samples[0] + n, shared->samples[1], shared->taken[1] * sizeof(uint64_t));
    print_quantiles(shared->samples[0], n + shared->taken[1]);
    puts("\nend");
    return 0;
}
