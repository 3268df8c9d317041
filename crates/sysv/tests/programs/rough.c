// A program that closes every descriptor that it did not open, as daemons do, and one that becomes
// another user: what it has goes on working.

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(condition) \
    if (!(condition)) return fprintf(stderr, "line %d: " #condition ": %s\n", __LINE__, strerror(errno)), 1

static int meet(int set) {
    // Each waits for the other, a hundred times.
    for (int i = 0; i < 100; i++) {
        struct sembuf give = {0, 1, 0}, take = {1, -1, 0};
        if (semop(set, &give, 1) || semop(set, &take, 1)) return -1;
    }
    return 0;
}

static int answer(int set) {
    for (int i = 0; i < 100; i++) {
        struct sembuf take = {0, -1, 0}, give = {1, 1, 0};
        if (semop(set, &take, 1) || semop(set, &give, 1)) return -1;
    }
    return 0;
}

int main(void) {
    int set = semget(IPC_PRIVATE, 2, 0666), id = shmget(IPC_PRIVATE, 4096, 0666);
    MUST(set >= 0 && id >= 0);
    char *at = shmat(id, NULL, 0);
    MUST(at != (void *)-1);
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        if (child == 0) {
            if (round == 0) close_range(3, ~0U, 0);
            if (round == 1)
                for (int fd = 3; fd < 70000; fd++) close(fd);
            // Root may: another user's permissions are asked for from then on.
            if (round == 2 && geteuid() == 0 && setresuid(65534, 65534, 65534)) _exit(1);
            strcpy(at, "met");
            _exit(answer(set) != 0);
        }
        MUST(meet(set) == 0);
        int status;
        MUST(waitpid(child, &status, 0) == child && status == 0 && strcmp(at, "met") == 0);
        at[0] = 0;
    }
    MUST(shmctl(id, IPC_RMID, NULL) == 0 && semctl(set, 0, IPC_RMID) == 0);
    return 0;
}
