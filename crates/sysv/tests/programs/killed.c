// Children that change three semaphores at once, all by the same, and are killed at random moments.
// Whoever looks finds all three alike; when they are gone, what they had to undo is undone.

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 400, CHILDREN = 3 };

static int set;
static pid_t parent;

static void work(unsigned seed) {
    // Never without its parent.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    for (unsigned i = seed;; i++) {
        short by = (short)(i % 3 + 1);
        struct sembuf up[] = {{0, by, SEM_UNDO}, {1, by, SEM_UNDO}, {2, by, SEM_UNDO}};
        struct sembuf down[3];
        memcpy(down, up, sizeof up);
        for (int j = 0; j < 3; j++) down[j].sem_op = (short)-by;
        if (semop(set, up, 3) || semop(set, down, 3)) _exit(1);
        // One that sleeps now and then, for one that is there or not.
        struct sembuf turn[] = {{3, -1, SEM_UNDO}}, back[] = {{3, 1, SEM_UNDO}};
        if (semop(set, turn, 1) || semop(set, back, 1)) _exit(1);
    }
}

static int alike(int expected) {
    unsigned short values[4];
    if (semctl(set, 0, GETALL, values)) return perror("GETALL"), 0;
    int same = values[0] == values[1] && values[1] == values[2];
    if (same && (expected < 0 || (values[0] == expected && values[3] == 1))) return 1;
    fprintf(stderr, "%d %d %d, turn %d\n", values[0], values[1], values[2], values[3]);
    return 0;
}

int main(void) {
    parent = getpid();
    set = semget(IPC_PRIVATE, 4, 0600);
    unsigned short begin[] = {10, 10, 10, 1};
    if (set < 0 || semctl(set, 0, SETALL, begin)) return perror("set"), 1;
    srand((unsigned)time(NULL));
    pid_t children[CHILDREN];
    for (int i = 0; i < CHILDREN; i++)
        if ((children[i] = fork()) == 0) work((unsigned)i);
    for (int round = 0; round < ROUNDS; round++) {
        int which = rand() % CHILDREN, status;
        usleep((useconds_t)(rand() % 3000));
        kill(children[which], SIGKILL);
        waitpid(children[which], &status, 0);
        if (!WIFSIGNALED(status)) return fprintf(stderr, "round %d: a child failed\n", round), 1;
        if (!alike(-1)) return fprintf(stderr, "round %d\n", round), 1;
        if ((children[which] = fork()) == 0) work((unsigned)round);
    }
    for (int i = 0; i < CHILDREN; i++) kill(children[i], SIGKILL);
    for (int i = 0; i < CHILDREN; i++) waitpid(children[i], NULL, 0);
    int done = alike(10);
    if (semctl(set, 0, IPC_RMID)) return perror("remove"), 1;
    return !done;
}
