// What a process has to undo stays over its exec: the new program may do it itself, and else it is
// undone when that ends.

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(condition) \
    if (!(condition)) return fprintf(stderr, "line %d: " #condition "\n", __LINE__), perror(""), 1

static int begun(int set, int gives_back) {
    struct sembuf other = {1, 2, SEM_UNDO}, back = {0, 1, SEM_UNDO};
    MUST(semctl(set, 0, GETVAL) == 0);
    if (gives_back) MUST(semop(set, &back, 1) == 0);
    MUST(semop(set, &other, 1) == 0);
    for (;;) pause();
}

int main(int argc, char **argv) {
    if (argc > 2) return begun(atoi(argv[1]), atoi(argv[2]));
    for (int gives_back = 0; gives_back < 2; gives_back++) {
        int set = semget(IPC_PRIVATE, 2, 0600);
        struct sembuf add = {0, 1, 0}, take = {0, -1, SEM_UNDO};
        MUST(set >= 0 && semop(set, &add, 1) == 0);
        pid_t child = fork();
        if (child == 0) {
            char number[16];
            snprintf(number, sizeof number, "%d", set);
            if (semop(set, &take, 1)) _exit(1);
            execl("/proc/self/exe", argv[0], number, gives_back ? "1" : "0", (char *)NULL);
            _exit(1);
        }
        for (int i = 0; i < 3000 && semctl(set, 1, GETVAL) != 2; i++) usleep(10000);
        MUST(semctl(set, 1, GETVAL) == 2);
        MUST(semctl(set, 0, GETVAL) == gives_back);
        MUST(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
        MUST(semctl(set, 1, GETVAL) == 0);
        MUST(semctl(set, 0, GETVAL) == 1);
        MUST(semctl(set, 0, IPC_RMID) == 0);
    }
    return 0;
}
