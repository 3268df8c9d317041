// Who has memory attached, as the kernel's answer says and as the list in the segment does.

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#define MUST(condition) \
    if (!(condition)) return fprintf(stderr, "line %d: " #condition ": %s\n", __LINE__, strerror(errno)), 1

// Bytes of a page, and pages of each segment.
enum { PAGE = 4096, PAGES = 16 };

static unsigned long attached(int id) {
    struct shmid_ds ds;
    return shmctl(id, IPC_STAT, &ds) ? 99999 : ds.shm_nattch;
}

// Has every place in the list be this process's. How many more there are.
static unsigned long fill(void) {
    char path[512];
    struct stat stat;
    if (!getenv("GINNEL_DIR")) return 0;
    snprintf(path, sizeof path, "%s/default", getenv("GINNEL_DIR"));
    int fd = open(path, O_RDWR);
    if (fd < 0 || fstat(fd, &stat)) return perror(path), 0;
    volatile uint64_t *map = mmap(NULL, (size_t)stat.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED) return perror("mmap"), 0;
    uint64_t magic;
    memcpy(&magic, "GINNELOB", 8);
    unsigned long filled = 0;
    for (size_t at = 0; at < (size_t)(64 << 20) / 8 && !filled; at += PAGE / 8) {
        if (map[at] != magic || map[at + 3] != PAGES * PAGE) continue;
        volatile uint64_t *list = map + at + (map[at + 4] - 2) * (PAGE / 8);
        for (int i = 0; i < 2 * PAGE / 16; i++)
            if (list[2 * i] == 0) list[2 * i] = list[0], filled++;
    }
    munmap((void *)map, (size_t)stat.st_size);
    return filled;
}

// Is what the first has written there still?
static int sees(const char *at) {
    for (int i = 0; i < PAGES; i++)
        if (strcmp(at + i * PAGE, "the first") != 0) return 0;
    return 1;
}
