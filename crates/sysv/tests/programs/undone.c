// Two have something to undo at one semaphore, and die one after the other while nobody looks: what
// the second takes away was given back by the first, and the value is as if neither had been.

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t begun(int set, short add) {
    int told[2];
    char byte;
    if (pipe(told)) return -1;
    pid_t child = fork();
    if (child == 0) {
        struct sembuf op = {0, add, SEM_UNDO};
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (semop(set, &op, 1) || write(told[1], "x", 1) != 1) _exit(1);
        for (;;) pause();
    }
    close(told[1]);
    if (read(told[0], &byte, 1) != 1) return -1;
    close(told[0]);
    return child;
}

int main(void) {
    int set = semget(IPC_PRIVATE, 1, 0600);
    pid_t gives = begun(set, 1), takes = begun(set, -1);
    if (set < 0 || gives < 0 || takes < 0) return perror("begin"), 1;
    kill(takes, SIGKILL), waitpid(takes, NULL, 0);
    kill(gives, SIGKILL), waitpid(gives, NULL, 0);
    int value = semctl(set, 0, GETVAL);
    if (semctl(set, 0, IPC_RMID)) return perror("remove"), 1;
    if (value != 0) fprintf(stderr, "value %d\n", value);
    return value != 0;
}
