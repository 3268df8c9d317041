// How often a segment is attached: over shmat, fork, exec, exit and kill -9; and when it is freed.

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(condition) \
    if (!(condition)) return fprintf(stderr, "line %d: " #condition ": %s\n", __LINE__, strerror(errno)), 1

static int id;

static long attached(void) {
    struct shmid_ds ds;
    return shmctl(id, IPC_STAT, &ds) ? -1 : (long)ds.shm_nattch;
}

static int ended(pid_t child, int signal) {
    int status;
    if (signal) kill(child, signal);
    return waitpid(child, &status, 0) == child;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        // After exec: nothing is attached here.
        id = atoi(argv[1]);
        MUST(attached() == 2);
        return 0;
    }
    id = shmget(IPC_PRIVATE, 100000, 0600);
    MUST(id >= 0 && attached() == 0);
    char *one = shmat(id, NULL, 0), *two = shmat(id, NULL, SHM_RDONLY);
    MUST(one != (void *)-1 && two != (void *)-1 && one != two && attached() == 2);
    strcpy(one + 99990, "one");
    MUST(strcmp(two + 99990, "one") == 0);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) pause(), _exit(0);
        MUST(attached() == 4);
        MUST(ended(child, SIGKILL) && attached() == 2);
    }
    pid_t child = fork();
    if (child == 0) {
        if (shmdt(one) || attached() != 3) _exit(1);
        // A grandchild, who goes without a word.
        pid_t grandchild = fork();
        if (grandchild == 0) _exit(0);
        ended(grandchild, 0);
        char number[16];
        snprintf(number, sizeof number, "%d", id);
        execl("/proc/self/exe", argv[0], number, (char *)NULL);
        _exit(1);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0 && attached() == 2);
    // A child has it while its parent lets go: it stays for the child, also without a name.
    int ready[2], go[2];
    MUST(pipe(ready) == 0 && pipe(go) == 0);
    child = fork();
    if (child == 0) {
        char byte;
        if (read(go[0], &byte, 1) != 1 || strcmp(one + 99990, "one")) _exit(1);
        char *again = shmat(id, NULL, 0);
        if (again == (void *)-1 || strcmp(again + 99990, "one") || attached() != 3) _exit(2);
        if (write(ready[1], "r", 1) != 1) _exit(3);
        pause();
        _exit(0);
    }
    MUST(shmctl(id, IPC_RMID, NULL) == 0 && shmdt(one) == 0 && shmdt(two) == 0);
    MUST(shmdt(one) == -1 && errno == EINVAL);
    struct shmid_ds ds;
    MUST(shmctl(id, IPC_STAT, &ds) == 0 && ds.shm_nattch == 2 && ds.shm_perm.mode == 01600);
    char byte;
    MUST(write(go[1], "g", 1) == 1 && read(ready[0], &byte, 1) == 1);
    MUST(ended(child, SIGKILL));
    MUST(attached() == -1 && errno == EINVAL);
    MUST(shmat(id, NULL, 0) == (void *)-1 && errno == EINVAL);
    return 0;
}
