// Word by word, a process that has the segment writes chosen values into an object that another uses
// and a third sleeps at. What these see is an answer, within their time: none of them crashes or
// hangs. For each word the object is a new one, with a measure of its own by which it is found.
// Plainly there is no such process.

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
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

enum { PAGE = 4096, WORDS = PAGE / 8, SHM = 8, SEM = 9, KEY = 0x7000, BYTES = 5000, LIMIT = 30000 };

static pid_t parent;
static volatile uint64_t *map;
static size_t pages;

static void failed(const char *what) {
    perror(what);
    exit(1);
}

// Everything that System V has for the object with this key. Answers are nobody's business here.
static void use(int kind, key_t key) {
    static unsigned short values[32000];
    if (kind == SHM) {
        struct shmid_ds ds;
        // As large as it needs it: that it is smaller now, it is told.
        int id = shmget(key, BYTES, 0);
        volatile char *at = shmat(id, NULL, 0);
        const volatile char *to_read = shmat(id, NULL, SHM_RDONLY);
        if (at != (void *)-1) at[0] = at[BYTES - 1] = 1;
        shmctl(id, IPC_STAT, &ds);
        if (at != (void *)-1 && fork() == 0) _exit(0);
        while (waitpid(-1, NULL, 0) > 0) {}
        if (at != (void *)-1) shmdt((const void *)at);
        if (to_read != (void *)-1) shmdt((const void *)to_read);
        return;
    }
    int set = semget(key, 0, 0);
    struct timespec soon = {0, 1000000};
    struct semid_ds ds;
    struct sembuf up = {0, 1, IPC_NOWAIT}, down = {0, -1, IPC_NOWAIT}, much = {1, -3, 0};
    struct sembuf several[] = {{0, 1, SEM_UNDO | IPC_NOWAIT}, {1, 1, SEM_UNDO | IPC_NOWAIT}, {2, 0, IPC_NOWAIT}};
    semop(set, &up, 1);
    semop(set, several, 3);
    semtimedop(set, &much, 1, &soon);
    several[0].sem_op = several[1].sem_op = -1;
    semop(set, several, 3);
    semop(set, &down, 1);
    semctl(set, 0, GETNCNT);
    semctl(set, 0, GETZCNT);
    semctl(set, 0, GETPID);
    semctl(set, 0, GETALL, values);
    semctl(set, 1, SETVAL, 0);
    semctl(set, 0, IPC_STAT, &ds);
}

// Uses the object once for each byte that comes.
static void serve(int kind, key_t key, int in, int out) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    char byte;
    while (read(in, &byte, 1) == 1) {
        use(kind, key);
        if (write(out, &byte, 1) != 1) _exit(1);
    }
    _exit(0);
}

static void sleep_at(int set) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    struct sembuf never[] = {{0, -30000, SEM_UNDO}, {1, 0, 0}};
    semop(set, never, 2);
    _exit(0);
}

// Where the first page of the object of this measure is.
static volatile uint64_t *head(int kind, uint64_t measure) {
    uint64_t magic;
    memcpy(&magic, "GINNELOB", 8);
    for (size_t page = 0; page < pages; page++) {
        volatile uint64_t *at = map + page * WORDS;
        if (at[0] == magic && (at[1] & 0xffff) == (uint64_t)kind && at[kind == SHM ? 3 : 5] == measure) return at;
    }
    fprintf(stderr, "no object of kind %d with %llu\n", kind, (unsigned long long)measure);
    exit(1);
}

// Who sleeps may be told nonsense, and ends then. `child`: 0 from there on.
static int sleeps_or_ended(pid_t *child, int word, int value) {
    int status;
    if (*child == 0 || waitpid(*child, &status, WNOHANG) != *child) return 1;
    *child = 0;
    if (status == 0) return 1;
    fprintf(stderr, "word %d, value %d: who slept ended with status %x\n", word, value, (unsigned)status);
    return 0;
}

// One word of a new object. Returns whether all is well.
static int attack(int kind, int number, int word) {
    key_t key = KEY + kind * 1000 + number;
    int measure = kind == SHM ? BYTES + number : 3 + number;
    int id = kind == SHM ? shmget(key, (size_t)measure, IPC_CREAT | 0600) : semget(key, measure, IPC_CREAT | 0600);
    if (id < 0) failed("get");
    int asks[2], answers[2], well = 1;
    if (pipe(asks) || pipe(answers)) failed("pipe");
    pid_t user = fork();
    if (user == 0) {
        close(asks[1]);
        serve(kind, key, asks[0], answers[1]);
    }
    pid_t sleeper = kind == SEM ? fork() : 0;
    if (kind == SEM && sleeper == 0) {
        close(asks[1]);
        sleep_at(id);
    }
    close(asks[0]);
    close(answers[1]);
    volatile uint64_t *at = map ? head(kind, (uint64_t)measure) + word : NULL;
    if (kind == SEM) usleep(500);
    for (int value = -1; value < 12 && well; value++) {
        uint64_t was = at ? *at : 0;
        uint64_t bad[] = {0, 1, ~0ull, was + 1, was - 1, was ^ 1ull << 63, was ^ 1ull << 31, 1ull << 43, 4096, 32767, 0x0000000700000007, 1ull << 62 | 5};
        // Once as it is: then it serves.
        if (at && value >= 0) *at = bad[value];
        struct pollfd answer = {answers[0], POLLIN, 0};
        char byte = 'x';
        if (write(asks[1], &byte, 1) != 1 || poll(&answer, 1, LIMIT) != 1 || read(answers[0], &byte, 1) != 1) {
            fprintf(stderr, "kind %d, word %d, value %d: no answer\n", kind, word, value);
            well = 0;
        }
        if (at) *at = was;
        well &= sleeps_or_ended(&sleeper, word, value);
    }
    close(asks[1]);
    close(answers[0]);
    int status;
    if (!well) kill(user, SIGKILL);
    if (waitpid(user, &status, 0) != user || (well && status)) {
        fprintf(stderr, "kind %d, word %d: who used it ended with status %x\n", kind, word, (unsigned)status);
        well = 0;
    }
    if (sleeper) {
        kill(sleeper, SIGKILL);
        waitpid(sleeper, &status, 0);
    }
    if (kind == SHM) shmctl(id, IPC_RMID, NULL);
    else semctl(id, 0, IPC_RMID);
    return well;
}

// KIND FIRST LAST: these words alone.
int main(int argc, char **argv) {
    int only_kind = argc == 4 ? atoi(argv[1]) : 0, first = argc == 4 ? atoi(argv[2]) : 0, last = argc == 4 ? atoi(argv[3]) : 0;
    signal(SIGPIPE, SIG_IGN);
    parent = getpid();
    // Garbage may say that the kernel has an object, and then it is made there: not to stay.
    if (unshare(CLONE_NEWIPC)) fprintf(stderr, "no namespace of its own: objects may stay\n");
    const char *directory = getenv("GINNEL_DIR");
    if (directory) {
        // The first call makes the segment.
        semctl(semget(KEY, 1, IPC_CREAT | 0600), 0, IPC_RMID);
        char path[512];
        snprintf(path, sizeof path, "%s/default", directory);
        struct stat stat;
        int fd = open(path, O_RDWR);
        if (fd < 0 || fstat(fd, &stat)) failed(path);
        map = mmap(NULL, (size_t)stat.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED) failed("mmap");
        pages = (size_t)stat.st_size / PAGE;
    }
    int bad = 0, number = 0;
    for (int kind = SHM; kind <= SEM; kind++)
        for (int word = 1; word < (kind == SHM ? 5 : 14) * WORDS && bad < 5; word++) {
            if (only_kind && (kind != only_kind || word < first || word > last)) continue;
            // What every object has, the first of each page behind, and some of the others.
            if (!only_kind && word >= 32 && word % WORDS >= 4 && word % 127) continue;
            // Plainly a few show that the calls are in order.
            if (!directory && number >= 10) break;
            bad += !attack(kind, number++, word);
        }
    fprintf(stderr, "%d words\n", number);
    return bad != 0;
}
