// `meets holds` takes a semaphore, to be undone, and stays; `meets waits` comes to both objects by their
// key, sees what the other wrote, and gets the semaphore when that is killed.

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <time.h>
#include <unistd.h>

#define MUST(condition) \
    if (!(condition)) return fprintf(stderr, "line %d: " #condition ": %s\n", __LINE__, strerror(errno)), 1

int main(int argc, char **argv) {
    int holds = argc > 1 && strcmp(argv[1], "holds") == 0;
    int id = shmget(0x77, 5000, IPC_CREAT | 0600), set = semget(0x77, 2, IPC_CREAT | 0600);
    MUST(id >= 0 && set >= 0);
    char *at = shmat(id, NULL, 0);
    MUST(at != (void *)-1);
    struct shmid_ds ds;
    if (holds) {
        strcpy(at + 4990, "held");
        struct sembuf take[] = {{0, 1, 0}, {0, -1, SEM_UNDO}, {1, 1, 0}};
        MUST(semop(set, take, 3) == 0);
        for (;;) pause();
    }
    struct sembuf begun = {1, -1, 0}, wait = {0, -1, 0};
    struct timespec time = {60, 0};
    MUST(semtimedop(set, &begun, 1, &time) == 0);
    MUST(strcmp(at + 4990, "held") == 0);
    MUST(shmctl(id, IPC_STAT, &ds) == 0 && ds.shm_nattch == 2);
    MUST(semctl(set, 0, GETVAL) == 0);
    MUST(semtimedop(set, &wait, 1, &time) == 0);
    MUST(shmctl(id, IPC_STAT, &ds) == 0 && ds.shm_nattch == 1);
    return 0;
}
