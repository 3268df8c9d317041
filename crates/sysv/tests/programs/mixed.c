// Tokens go round by calls of one operation each, which need no lock where nobody sleeps. Others do
// on the same semaphores all that takes the long way: several operations, some to be undone, short
// sleeps, waiting for zero; and are killed at random moments. No token is lost or made, nobody who
// could go on sleeps for good, and a counter that a semaphore guards is right.
//
// mixed ROUNDS

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RUNNERS = 3, OTHERS = 3, TOKENS = 2, GUARD = RUNNERS, ZERO, SEMAPHORES };

static struct {
    atomic_long passed[RUNNERS];
    atomic_int ends;
    long guarded, by[RUNNERS];
} *shared;
static int set;
static pid_t parent;

static int one(int number, int add, int flags) {
    struct sembuf op = {(unsigned short)number, (short)add, (short)flags};
    return semop(set, &op, 1);
}

static void run(int which) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    while (!atomic_load(&shared->ends)) {
        if (one(which, -1, 0)) _exit(2);
        if (one(GUARD, -1, 0)) _exit(3);
        shared->guarded++, shared->by[which]++;
        if (one(GUARD, 1, 0)) _exit(4);
        if (one((which + 1) % RUNNERS, 1, 0)) _exit(5);
        atomic_fetch_add(&shared->passed[which], 1);
    }
    _exit(0);
}

static void other(unsigned seed) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    srand(seed);
    for (;;) {
        unsigned short at = (unsigned short)(rand() % RUNNERS), next = (unsigned short)((at + 1) % RUNNERS);
        struct timespec time = {0, rand() % 2000000};
        struct sembuf both[] = {{at, 1, 0}, {at, -1, 0}, {next, 1, SEM_UNDO}, {next, -1, SEM_UNDO}};
        struct sembuf taken[] = {{at, -1, SEM_UNDO}, {ZERO, 0, 0}}, back[] = {{at, 1, SEM_UNDO}};
        struct sembuf never[] = {{at, -1, 0}, {next, -1, 0}, {ZERO, -1, 0}};
        switch (rand() % 5) {
        case 0: if (semop(set, both, 4)) _exit(6); break;
        case 1: if (semtimedop(set, never, 3, &time) == 0 || errno != EAGAIN) _exit(7); break;
        case 2: one(at, 0, IPC_NOWAIT); break;
        case 3: if (semctl(set, at, GETNCNT) < 0) _exit(8); break;
        default:
            if (semtimedop(set, taken, 2, &time) == 0) {
                if (semop(set, back, 1)) _exit(9);
            } else if (errno != EAGAIN) {
                _exit(10);
            }
        }
    }
}

static long passed(void) {
    long all = 0;
    for (int i = 0; i < RUNNERS; i++) all += atomic_load(&shared->passed[i]);
    return all;
}

static int tokens(void) {
    unsigned short values[SEMAPHORES];
    if (semctl(set, 0, GETALL, values)) return -1;
    int all = 0;
    for (int i = 0; i < RUNNERS; i++) all += values[i];
    return values[GUARD] == 1 && values[ZERO] == 0 ? all : -2;
}

// Until so many more were passed on, with a limit that only a hang meets.
static int goes_on(long more) {
    long from = passed();
    for (int i = 0; i < 60000; i++) {
        if (passed() >= from + more) return 1;
        usleep(1000);
    }
    unsigned short values[SEMAPHORES] = {0};
    semctl(set, 0, GETALL, values);
    for (int i = 0; i < SEMAPHORES; i++)
        fprintf(stderr, "%d: %d, %d wait\n", i, values[i], semctl(set, i, GETNCNT));
    return 0;
}

int main(int count, char **arguments) {
    int rounds = count > 1 ? atoi(arguments[1]) : 100, status, bad = 0;
    unsigned seed = (unsigned)time(NULL) ^ (unsigned)getpid() << 8;
    fprintf(stderr, "seed %u\n", seed);
    parent = getpid();
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    set = semget(IPC_PRIVATE, SEMAPHORES, 0600);
    unsigned short begin[SEMAPHORES] = {TOKENS, 0, 0, 1, 0};
    if (shared == MAP_FAILED || set < 0 || semctl(set, 0, SETALL, begin)) return perror("begin"), 1;
    srand(seed);
    pid_t runners[RUNNERS], others[OTHERS];
    for (int i = 0; i < RUNNERS; i++)
        if ((runners[i] = fork()) == 0) run(i);
    for (int i = 0; i < OTHERS; i++)
        if ((others[i] = fork()) == 0) other(seed += 1);
    for (int round = 0; round < rounds; round++) {
        int which = rand() % OTHERS;
        usleep((useconds_t)(rand() % 3000));
        kill(others[which], SIGKILL);
        waitpid(others[which], &status, 0);
        if (!WIFSIGNALED(status)) return fprintf(stderr, "round %d: status %x\n", round, (unsigned)status), 1;
        if (!goes_on(20)) return fprintf(stderr, "round %d: nobody goes on\n", round), 1;
        if ((others[which] = fork()) == 0) other(seed += 1);
    }
    for (int i = 0; i < OTHERS; i++) kill(others[i], SIGKILL);
    for (int i = 0; i < OTHERS; i++) waitpid(others[i], &status, 0);
    if (!goes_on(20)) return fprintf(stderr, "alone they do not go on\n"), 1;
    // One after the other finds the end; a token more brings each there that sleeps.
    atomic_store(&shared->ends, 1);
    int more = 0;
    for (int i = 0; i < RUNNERS; i++) {
        pid_t ended = 0;
        while ((ended = waitpid(runners[i], &status, WNOHANG)) == 0) usleep(1000), one(i, 1, 0), more++;
        if (ended != runners[i] || status != 0) fprintf(stderr, "runner %d: %x\n", i, (unsigned)status), bad = 1;
    }
    long guarded = 0;
    for (int i = 0; i < RUNNERS; i++) guarded += shared->by[i];
    if (tokens() != TOKENS + more) fprintf(stderr, "%d tokens, not %d\n", tokens(), TOKENS + more), bad = 1;
    if (guarded != shared->guarded) fprintf(stderr, "guarded %ld, by %ld\n", shared->guarded, guarded), bad = 1;
    fprintf(stderr, "%ld passed\n", passed());
    if (semctl(set, 0, IPC_RMID)) return perror("remove"), 1;
    return bad;
}
