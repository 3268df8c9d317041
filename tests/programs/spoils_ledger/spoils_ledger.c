// Somebody who has another user's ledger mapped, as a worker had that gave up root: writes chosen and random garbage into what the ledger says of sockets and processes, for a while.
//
//     spoils_ledger SOCKETS PROCESSES SECONDS SEED
//
// It knows the layout, and none of Ginnel's code. Every second thing that it does is the attack itself: a ring is said to lie where the victim has other memory, in front of the segment or behind it.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// Of the ledger of sockets, and of the process table, whose entries lie behind a header of the same size.
enum { HEADER = 8192, PROCESS = 128, PROCESSES = 4096, SLOTS = 73728, SLOT = 1024, COUNT = 32768, SEEN = 4096 };
// Locks in the header of the process table.
enum { MEMBERS_LOCK = 1296, DOUBTS_LOCK = 1560 };
// In a slot: the writer's and the reader's halves, and in them the lock and the rings' places.
enum { TX = 256, RX = 448, TX_WORDS = 24, RX_WORDS = 16 };

static volatile uint8_t *base, *table;
static uint64_t size, seed, did[4];
static uint32_t used[SEEN], count, living[PROCESSES], processes;

static uint64_t roll(uint64_t n) {
    seed ^= seed >> 12, seed ^= seed << 25, seed ^= seed >> 27;
    return (seed * 0x2545f4914f6cdd1dull >> 16) % n;
}

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static volatile uint64_t *word(uint64_t at) { return (volatile uint64_t *)(base + (at + 8 <= size ? at & ~7ull : size - 8)); }

static volatile uint64_t *of_process(uint64_t at) { return (volatile uint64_t *)(table + at); }

static void look(void) {
    count = 0;
    for (uint32_t i = 0; i < COUNT && count < SEEN; i++) {
        if (*word(SLOTS + (uint64_t)i * SLOT)) used[count++] = i;
    }
    processes = 0;
    for (uint32_t i = 0; i < PROCESSES; i++) {
        // Its first word has the process's number.
        if (*of_process(HEADER + (uint64_t)i * PROCESS)) living[processes++] = i;
    }
}

static uint64_t value(uint64_t is) {
    static const uint64_t edges[] = {0, 1, 2, 4095, 4096, 32768, 1 << 20, 1 << 26, 1ull << 31, 1ull << 32, 1ull << 40, 1ull << 62, 1ull << 63, -1ull, -8ull, -4096ull, -(1ull << 30)};
    switch (roll(7)) {
    case 0: return edges[roll(sizeof edges / sizeof *edges)];
    case 1: return is + edges[roll(sizeof edges / sizeof *edges)];
    case 2: return is ^ 1ull << roll(64);
    case 3: return is + roll(100000) - 50000;
    case 4: return roll(1 << 16);
    default: return roll(-1ull) << 16 ^ roll(-1ull);
    }
}

// A ring elsewhere: of some size, some way from the segment.
static void move_ring(uint64_t slot) {
    static const uint16_t places[][2] = {{TX + 40, TX + 48}, {TX + 72, TX + 80}, {RX + 32, RX + 40}};
    uint32_t which = (uint32_t)roll(3);
    *word(slot + places[which][0]) = roll(2) ? value(*word(slot + places[which][0])) : (roll(1 << 22) - (1 << 21)) * 4096 * (1 + roll(1 << 10));
    if (roll(2)) *word(slot + places[which][1]) = roll(3) ? 1ull << roll(64) : value(*word(slot + places[which][1]));
}

// A lock that names a process which lives is waited for: whoever shares a ledger can do that, as he can stop the other
// by a signal. So what is written into locks names nobody.
static uint64_t name_nobody(void) { return roll(-1ull) << 16 | 0xfff0; }

static void spoil(void) {
    uint64_t slot = SLOTS + (uint64_t)(count ? used[roll(count)] : roll(COUNT)) * SLOT;
    if (roll(2)) {
        did[0]++;
        move_ring(slot);
    } else if (roll(4)) {
        // Most of what a call looks at. The first words of both halves are locks: a living process named there is another test's.
        uint64_t at = roll(2) ? TX + 8 * roll(TX_WORDS) : RX + 8 * roll(RX_WORDS);
        did[1]++;
        *word(slot + at) = at == TX || at == RX ? name_nobody() : value(*word(slot + at));
    } else if (roll(3)) {
        did[2]++;
        uint64_t at = 8 * roll(SLOT / 8);
        *word(slot + at) = at == TX || at == RX ? name_nobody() : value(*word(slot + at));
    } else {
        did[3]++;
        // Of the ledger's header its second half: in the first are the words by which the file is known, and locks.
        volatile uint64_t *what = word(HEADER / 2 + 8 * roll(HEADER / 2 / 8));
        if (roll(4)) {
            uint64_t entry = processes && roll(2) ? living[roll(processes)] : roll(PROCESSES);
            what = of_process(HEADER + entry * PROCESS + 8 * roll(PROCESS / 8));
        } else if (roll(2)) {
            // What lies in front is what the file is known by.
            uint64_t at = 16 + 8 * roll(HEADER / 8 - 2);
            what = of_process(at);
            if (at == MEMBERS_LOCK || at == DOUBTS_LOCK) {
                *what = name_nobody();
                return;
            }
        }
        *what = value(*what);
    }
}

static volatile uint8_t *map(const char *path, uint64_t expected) {
    int fd = open(path, O_RDWR);
    struct stat stat;
    if (fd < 0 || fstat(fd, &stat)) perror(path), exit(2);
    if ((uint64_t)stat.st_size != expected) fprintf(stderr, "%s: another layout: %llu bytes\n", path, (unsigned long long)stat.st_size), exit(2);
    void *at = mmap(NULL, expected, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) perror("mmap"), exit(2);
    return at;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    size = SLOTS + (uint64_t)COUNT * SLOT, seed = strtoull(argv[4], NULL, 0) | 1;
    base = map(argv[1], size);
    table = map(argv[2], HEADER + PROCESSES * PROCESS);
    int64_t end = now_ms() + atoi(argv[3]) * 1000;
    while (now_ms() < end) {
        look();
        for (int i = 0; i < 40; i++) spoil();
        usleep(200);
    }
    printf("{\"rings\": %llu, \"halves\": %llu, \"words\": %llu, \"others\": %llu}\n", (unsigned long long)did[0], (unsigned long long)did[1], (unsigned long long)did[2],
           (unsigned long long)did[3]);
    return 0;
}
