// A hostile holder of a segment: writes chosen and random garbage over all of it, again and again, for a while.
//
//     hostile FILE SECONDS SEED
//
// FILE is a segment's file, the guest driver's device, or a PCI device's memory. It knows the layout, and none of Ginnel's code. Most of what it does is small, so
// that connections live long enough to be found in every state. What the host's table of peers and the header say it puts back at the end.
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, RENDEZVOUS = 2 << 20, MEMBERS = 64 << 10, ENTRY = 128 };
static const uint64_t CHANNEL_MAGIC = 0x314e4148434e4947;  // "GINCHAN1"
enum { CHANNEL = 1, RING = 2, WAITER = 3, SEEN = 4096 };

static volatile uint8_t *base;
static uint64_t size, seed;
static uint32_t found[4][SEEN], count[4];
static uint64_t did[16];

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
static uint64_t owners(void) { return PAGE + RENDEZVOUS + MEMBERS; }

// Which pages are in use, and for what.
static void look(void) {
    memset(count, 0, sizeof count);
    for (uint32_t page = 0; page < size / PAGE; page++) {
        uint64_t owner = *word(owners() + page * 8ull);
        uint32_t kind = owner >> 57 & 15;
        if (owner >> 62 & 1 && kind >= CHANNEL && kind <= WAITER && count[kind] < SEEN) found[kind][count[kind]++] = page;
    }
}

static uint64_t some(uint32_t kind) {
    // Now and then a page that is none of that kind.
    return (count[kind] == 0 || roll(50) == 0 ? roll(size / PAGE) : found[kind][roll(count[kind])]) * PAGE;
}

// A wish to be woken: the kinds there are, and pages and bits of others.
static uint64_t wish(void) {
    switch (roll(5)) {
    case 0: return roll(5);
    case 1: return 1ull << 63 | some(WAITER) / PAGE << 16 | roll(1 << 16);
    case 2: return 1ull << 63 | some(CHANNEL) / PAGE << 16 | roll(64);
    case 3: return 1ull << 63 | 0xffffffffffffull;
    default: return 1ull << 63 | roll(1ull << 48);
    }
}

// A value for a word that says `is` now; `near` lies in the same page.
static uint64_t value(uint64_t is, uint64_t near) {
    static const uint64_t edges[] = {0, 1, 2, 3, 4, 7, 4095, 4096, 4097, 32768, 65536, 1 << 20, 1 << 26, 1 << 27, 1ull << 31, 1ull << 32, 1ull << 40,
                                     (1ull << 40) - 1, 1ull << 62, 1ull << 63, (1ull << 63) - 1, -1ull, -2ull, -8ull, -4096ull, -4097ull, 0x47494e4348414e31ull};
    switch (roll(12)) {
    case 0: case 1: return edges[roll(sizeof edges / sizeof *edges)];
    case 2: return is + 1;
    case 3: return is - 1;
    case 4: return is + edges[roll(sizeof edges / sizeof *edges)];
    case 5: return is ^ 1ull << roll(64);
    case 6: return *word(near / PAGE * PAGE + roll(512) * 8);
    case 7: return size - roll(3) * PAGE;
    case 8: return some(1 + (uint32_t)roll(3));
    case 9: return wish();
    case 10: return is + roll(100000) - 50000;
    default: return roll(-1ull) << 16 ^ roll(-1ull);
    }
}

static void spoil(uint64_t at) { *word(at) = value(*word(at), at); }

static void spray(uint64_t at, uint64_t bytes) {
    for (uint64_t i = 0; i + 8 <= bytes; i += 8) *word(at + i) = roll(4) == 0 ? value(0, at) : roll(-1ull) << 16;
}

// One word of a channel, most often one that is looked at on the way of a byte.
static void channel_word(void) {
    static const uint16_t hot[] = {0x000, 0x008, 0x010, 0x018, 0x050, 0x060, 0x200, 0x208, 0x210, 0x240, 0x248, 0x250, 0x258, 0x260, 0x268, 0x270,
                                   0x280, 0x288, 0x290, 0x298, 0x2a0, 0x2a8, 0x2c0, 0x2c8, 0x300, 0x340, 0x348, 0x350, 0x358, 0x360, 0x368, 0x370};
    uint64_t at = some(CHANNEL);
    uint64_t offset = roll(8) == 0 ? roll(512) * 8 : hot[roll(sizeof hot / 2)] + (roll(2) ? 0x200u : 0);
    at += offset % PAGE;
    if (roll(6) == 0 && (offset & 0x1ff) >= 0x0c0) *word(at) = wish();
    else spoil(at);
}

// Something that hangs together, and is wrong in one place: a switch, a larger ring, a freeze, an end.
static void channel_record(void) {
    uint64_t at = some(CHANNEL) + (roll(2) ? 0x200 : 0x400);
    uint64_t epoch = *word(at + 8), tail = *word(at), head = *word(at + 0x100), received = *word(at + 0x170);
    switch (roll(5)) {
    case 0: {
        uint64_t next = epoch + 1 + roll(2), record = at + (next & 1 ? 0x40 : 0x58);
        *word(record) = next;
        *word(record + 8) = roll(2) ? received + roll(100) : value(received, at);
        *word(record + 16) = roll(2) ? tail : value(tail, at);
        *word(at + 8) = next;
        break;
    }
    case 1: {
        uint64_t grown = *word(at + 0x10) + 1, ring = at + 0x80 + (grown & 1) * 24, large = 1ull << (12 + roll(8));
        *word(ring) = roll(3) ? (roll(2) ? head - roll(100000) : tail) : value(tail, at);
        *word(ring + 8) = roll(3) ? size - large : some(RING);
        *word(ring + 16) = roll(4) ? large : value(large, at);
        *word(at + 0x10) = grown;
        break;
    }
    case 2:
        *word(at + 0x158) = roll(2) ? head : value(tail, at);
        *word(at + 0x150) = epoch;
        break;
    case 3: *word(at + 0x70) = roll(2) ? tail : value(tail, at); break;
    default: *word(at) = tail + roll(40000); break;
    }
}

static void rendezvous_word(void) {
    for (int tries = 0; tries < 200; tries++) {
        uint64_t at = PAGE + roll(RENDEZVOUS / ENTRY) * ENTRY;
        if (*word(at) == 0 && tries < 199) continue;
        if (roll(3) == 0) *word(at) = roll(6);
        else spoil(at + roll(13) * 8);
        // An offer of some page.
        if (roll(3) == 0) *word(at + 88) = roll(2) ? some(CHANNEL) / PAGE : value(0, at), *word(at + 96) = *word(at + 64), *word(at) = 4;
        return;
    }
}

static void owner_word(void) {
    uint64_t at = owners() + some(1 + (uint32_t)roll(3)) / PAGE * 8;
    switch (roll(4)) {
    case 0: *word(at) = 0; break;
    case 1: *word(at) = 3ull << 62 | (roll(8) << 57) | roll(3) << 28 | some(1 + (uint32_t)roll(3)) / PAGE; break;
    case 2: *word(at) ^= 1ull << roll(64); break;
    default: spoil(at);
    }
}

static void waiter_word(void) {
    uint64_t at = some(WAITER), offset = roll(2) ? roll(9) * 8 : 0x80 + roll(496) * 8;
    spoil(at + offset);
    if (roll(2)) *word(at + 0x40) = -1ull;
}

// One word, to and fro, as fast as can be: between a look at it and its use.
static void flicker(void) {
    uint64_t at = some(CHANNEL) + (roll(2) ? 0x200 : 0x400) + roll(64) * 8, was = *word(at), wrong = value(was, at);
    for (int64_t end = now_ms() + 1 + (int64_t)roll(4); now_ms() < end;)
        for (int i = 0; i < 200; i++) *word(at) = i & 1 ? was : wrong;
}

static void act(const uint64_t *header) {
    uint64_t die = roll(1000);
    look();
    if (die < 400) did[0]++, channel_word();
    else if (die < 560) did[1]++, channel_record();
    else if (die < 640) did[2]++, spray(some(RING) + roll(512) * 8, roll(600));
    else if (die < 740) did[3]++, waiter_word();
    else if (die < 820) did[4]++, rendezvous_word();
    else if (die < 870) did[5]++, owner_word();
    else if (die < 890) did[6]++, spoil(PAGE + RENDEZVOUS + roll(8) * 64);
    else if (die < 920) {
        did[7]++;
        uint64_t at = roll(2) ? roll(5) * 8 : 2048 + roll(8) * 8;
        spoil(at);
        usleep(1000);
        memcpy((void *)base, header, PAGE);
    } else if (die < 980) did[8]++, flicker();
    else if (die < 996) did[9]++, spray(some(1 + (uint32_t)roll(3)), PAGE);
    else did[10]++, spray(PAGE + roll(2) * RENDEZVOUS, 64 << 10);
}

// Lets connections come into being again: empties the table of meetings and frees pages that nothing is to be learnt from any more.
static void heal(void) {
    for (uint64_t at = PAGE; at < PAGE + RENDEZVOUS; at += ENTRY) *word(at) = 0;
    for (uint64_t page = (owners() + size / PAGE * 8) / PAGE + 1; page < size / PAGE; page++) {
        uint64_t owner = *word(owners() + page * 8), kind = owner >> 57 & 15;
        bool lost = kind == 0 || kind > WAITER || (kind == CHANNEL && *word(page * PAGE) != CHANNEL_MAGIC);
        if (owner >> 62 & 1 && (lost || roll(20) == 0)) *word(owners() + page * 8) = 0;
    }
}

int main(int argc, char **argv) {
    if (argc < 4) return fprintf(stderr, "hostile FILE SECONDS SEED\n"), 2;
    int fd = open(argv[1], O_RDWR);
    struct stat stat;
    if (fd < 0 || fstat(fd, &stat) != 0) return perror(argv[1]), 2;
    size = (uint64_t)stat.st_size;
    if (S_ISCHR(stat.st_mode)) {
        struct { uint32_t version, flags, peer, vectors; uint64_t size; } info;
        if (ioctl(fd, _IOC(_IOC_READ, 0xb6, 1, sizeof info), &info) != 0) return perror(argv[1]), 2;
        size = info.size;
    }
    base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) return perror("mmap"), 2;
    seed = strtoull(argv[3], NULL, 0) * 0x9e3779b97f4a7c15ull | 1;
    uint64_t header[PAGE / 8];
    memcpy(header, (void *)base, PAGE);
    int64_t start = now_ms(), end = start + atoll(argv[2]) * 1000;
    bool peace = false;
    while (now_ms() < end) {
        // A time of peace, in which connections come into being; then a little now and then; then all that can be.
        int64_t phase = (now_ms() - start) % 900;
        if (phase < 250) {
            if (!peace) heal();
            usleep(10000);
        }
        else {
            act(header);
            if (phase < 750) usleep((useconds_t)roll(1500));
            else if (roll(4) == 0) usleep((useconds_t)roll(200));
        }
        peace = phase < 250;
    }
    memcpy((void *)base, header, PAGE);
    printf("{\"channel_words\": %lu, \"records\": %lu, \"rings\": %lu, \"waiters\": %lu, \"rendezvous\": %lu, \"owners\": %lu, \"members\": %lu, \"headers\": %lu, "
           "\"flickers\": %lu, \"pages\": %lu, \"tables\": %lu}\n",
           did[0], did[1], did[2], did[3], did[4], did[5], did[6], did[7], did[8], did[9], did[10]);
    return 0;
}
