// More children than the list of one segment has room for, the last of which find no descriptor: all
// have the memory attached. It is removed, its maker lets go of it, others are made in its place: who
// has it still sees what was in it.
//
// crowd CHILDREN WITHOUT FULL: so many of them are without a descriptor; FULL: the list is filled by
// hand, in the segment, where there is one.

#include "attached.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { MOST = 600 };

// Waits to be told, then looks.
static int look(char *at, int told) {
    char byte;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (read(told, &byte, 1) != 0) return 2;
    return sees(at) ? 0 : 1;
}

static int spoil(int made[]) {
    for (int i = 0; i < 8; i++) {
        made[i] = shmget(IPC_PRIVATE, PAGES * PAGE, 0600);
        char *at = shmat(made[i], NULL, 0);
        if (at == (void *)-1) return -1;
        for (int page = 0; page < PAGES; page++) strcpy(at + page * PAGE, "another's");
        shmdt(at);
    }
    return 0;
}

int main(int count, char **arguments) {
    int children = count > 1 ? atoi(arguments[1]) : 520, without = count > 2 ? atoi(arguments[2]) : 0;
    unsigned long filled = 0;
    int id = shmget(IPC_PRIVATE, PAGES * PAGE, 0600), told[2], made[8], bad = 0;
    MUST(id >= 0 && children <= MOST && pipe(told) == 0);
    char *at = shmat(id, NULL, 0);
    MUST(at != (void *)-1);
    for (int page = 0; page < PAGES; page++) strcpy(at + page * PAGE, "the first");
    if (count > 3) filled = fill();
    if (count > 3 && getenv("GINNEL_DIR")) MUST(filled > 100);
    pid_t child[MOST];
    for (int i = 0; i < children; i++) {
        if (i == children - without) {
            // From here on nobody finds a descriptor, nor does the library.
            struct rlimit few = {3, 3};
            MUST(setrlimit(RLIMIT_NOFILE, &few) == 0);
        }
        child[i] = fork();
        MUST(child[i] >= 0);
        if (child[i] == 0) close(told[1]), _exit(look(at, told[0]));
        if (i == children - 1 - without)
            MUST(attached(id) == (unsigned long)children - (unsigned long)without + 1 + filled);
    }
    // Those that are in the list are gone, so that nobody speaks for the others.
    for (int i = 0; i < children - without && i < 511 && !filled; i++)
        kill(child[i], SIGKILL), waitpid(child[i], NULL, 0);
    MUST(shmctl(id, IPC_RMID, NULL) == 0 && shmdt(at) == 0 && spoil(made) == 0);
    close(told[1]);
    for (int i = 0; i < children; i++) {
        int status;
        if (waitpid(child[i], &status, 0) != child[i]) continue;
        if (status != 0) fprintf(stderr, "child %d: status %x\n", i, (unsigned)status), bad = 1;
    }
    for (int i = 0; i < 8; i++) shmctl(made[i], IPC_RMID, NULL);
    return bad;
}
