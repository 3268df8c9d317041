// A process that has the segment writes garbage into every object of it, while others use them. These
// may be told nonsense, and wait for nothing; none of them crashes. Plainly there is no such process.

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHILDREN = 4, SETS = 3, PAGE = 4096, SECONDS = 6 };
static pid_t parent;

static void use(unsigned seed) {
    // Never without its parent.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    srand(seed);
    for (;;) {
        key_t key = 0x400 + rand() % SETS;
        int set = semget(key, 1 + rand() % 4, IPC_CREAT | 0600);
        int id = shmget(key, 1 + (size_t)(rand() % 20000), IPC_CREAT | 0600);
        for (int i = 0; i < 50; i++) {
            struct sembuf ops[3];
            for (int j = 0; j < 3; j++)
                ops[j] = (struct sembuf){(unsigned short)(rand() % 3), (short)(rand() % 5 - 2), (short)(rand() % 2 ? SEM_UNDO : IPC_NOWAIT)};
            struct timespec time = {0, rand() % 3000000};
            semtimedop(set, ops, 1 + (size_t)(rand() % 3), &time);
            unsigned short values[32000];
            struct semid_ds ds;
            if (rand() % 4 == 0) semctl(set, rand() % 3, GETNCNT);
            if (rand() % 8 == 0) semctl(set, rand() % 3, SETVAL, rand() % 3);
            if (rand() % 8 == 0) semctl(set, 0, GETALL, values);
            if (rand() % 8 == 0) semctl(set, 0, IPC_STAT, &ds);
        }
        char *at = shmat(id, NULL, 0);
        if (at != (void *)-1) {
            struct shmid_ds ds;
            // What it says of its size is not to be believed after this; the map is what it was.
            at[0] = 1;
            shmctl(id, IPC_STAT, &ds);
            if (rand() % 8 == 0 && fork() == 0) _exit(0);
            shmdt(at);
        }
        if (rand() % 10 == 0) semctl(set, 0, IPC_RMID);
        if (rand() % 10 == 0) shmctl(id, IPC_RMID, NULL);
        while (waitpid(-1, NULL, WNOHANG) > 0) {}
    }
}

static void spoil(volatile uint64_t *map, size_t words) {
    static const char magic[] = "GINNELOB";
    uint64_t wanted;
    memcpy(&wanted, magic, 8);
    static const uint64_t bad[] = {0, 1, 2, 3, ~0ull, 1ull << 31, 1ull << 43, 32767, 32000, 4096, 0x20001, 0xffff};
    // The objects' pages, as far as they are looked for: few are in use.
    size_t end = words < ((size_t)64 << 20) / 8 ? words : ((size_t)64 << 20) / 8;
    for (size_t at = 0; at < end; at += PAGE / 8) {
        if (map[at] != wanted) continue;
        size_t pages = map[at + 4] < 64 ? (size_t)map[at + 4] : 1;
        for (int i = 0; i < 20; i++) {
            size_t word = at + 1 + (size_t)rand() % (pages * PAGE / 8 - 1);
            // Most of the first page's words, too; its place among the names one time in many.
            if (rand() % 3 == 0) word = at + 3 + (size_t)rand() % 40;
            if (word >= words) continue;
            map[word] = rand() % 3 ? bad[(size_t)rand() % (sizeof bad / 8)] : (uint64_t)rand() << 32 | (uint64_t)rand();
        }
    }
}

int main(void) {
    parent = getpid();
    const char *directory = getenv("GINNEL_DIR");
    int seconds = directory ? SECONDS : 1, bad = 0, status;
    unsigned seed = (unsigned)time(NULL);
    // Garbage may say that the kernel has an object, and then it is made there: not to stay.
    if (unshare(CLONE_NEWIPC)) fprintf(stderr, "no namespace of its own: objects may stay\n");
    fprintf(stderr, "seed %u\n", seed);
    pid_t children[CHILDREN];
    for (int i = 0; i < CHILDREN; i++)
        if ((children[i] = fork()) == 0) use(seed + (unsigned)i);
    volatile uint64_t *map = NULL;
    size_t words = 0;
    if (directory) {
        char path[512];
        snprintf(path, sizeof path, "%s/default", directory);
        struct stat stat;
        int fd = -1;
        for (int i = 0; i < 100 && (fd = open(path, O_RDWR)) < 0; i++) usleep(20000);
        if (fd < 0 || fstat(fd, &stat)) return perror(path), 1;
        map = mmap(NULL, (size_t)stat.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED) return perror("mmap"), 1;
        words = (size_t)stat.st_size / 8;
    }
    time_t until = time(NULL) + seconds;
    srand(seed);
    while (time(NULL) < until) {
        usleep(2000);
        if (map) spoil(map, words);
        // Who waits for what nobody gives back is ended, and another comes.
        int which = rand() % CHILDREN;
        if (rand() % 20) continue;
        kill(children[which], SIGKILL);
        if (waitpid(children[which], &status, 0) != children[which]) return perror("waitpid"), 1;
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
            fprintf(stderr, "a child ended with status %x\n", (unsigned)status), bad = 1;
        if ((children[which] = fork()) == 0) use(seed += 100);
    }
    for (int i = 0; i < CHILDREN; i++) {
        kill(children[i], SIGKILL);
        if (waitpid(children[i], &status, 0) < 0) return perror("waitpid"), 1;
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
            fprintf(stderr, "a child ended with status %x\n", (unsigned)status), bad = 1;
    }
    for (int i = 0; i < SETS && !directory; i++) {
        semctl(semget(0x400 + i, 0, 0), 0, IPC_RMID);
        shmctl(shmget(0x400 + i, 0, 0), IPC_RMID, NULL);
    }
    return bad;
}
