// Bad pointers give EFAULT; ids that are none, EINVAL; what is undone is an operation, too.

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MUST(condition) \
    if (!(condition)) return fprintf(stderr, "line %d: " #condition ": %s\n", __LINE__, strerror(errno)), 1
#define FAILS(call, number) MUST((errno = 0, call) == -1 && errno == number)

int main(void) {
    int set = semget(IPC_PRIVATE, 3, 0600), id = shmget(IPC_PRIVATE, 4096, 0600);
    MUST(set >= 0 && id >= 0);
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(pages != MAP_FAILED && munmap(pages + 4096, 4096) == 0);
    // The last one lies in part where nothing is.
    void *bad[] = {NULL, (void *)8, pages + 4096, pages + 4094};
    for (int i = 0; i < 4; i++) {
        FAILS(semop(set, bad[i], 1), EFAULT);
        FAILS(semop(set, bad[i], 2), EFAULT);
        FAILS(semctl(set, 0, GETALL, bad[i]), EFAULT);
        FAILS(semctl(set, 0, SETALL, bad[i]), EFAULT);
        FAILS(semctl(set, 0, IPC_STAT, bad[i]), EFAULT);
        FAILS(semctl(set, 0, IPC_SET, bad[i]), EFAULT);
        FAILS(semctl(0, 0, IPC_INFO, bad[i]), EFAULT);
        FAILS(shmctl(id, IPC_STAT, bad[i]), EFAULT);
        FAILS(shmctl(id, IPC_SET, bad[i]), EFAULT);
        FAILS(shmctl(0, IPC_INFO, bad[i]), EFAULT);
        struct sembuf op = {0, 1, 0};
        if (bad[i]) FAILS(semtimedop(set, &op, 1, bad[i]), EFAULT);
    }
    unsigned short values[3] = {9, 9, 9};
    MUST(semctl(set, 0, GETALL, values) == 0 && values[0] == 0 && values[2] == 0);
    // Where the page is there to its end.
    struct sembuf *last = (struct sembuf *)(pages + 4096 - sizeof *last);
    *last = (struct sembuf){1, 1, 0};
    MUST(semop(set, last, 1) == 0 && semop(set, last, 1) == 0 && semctl(set, 1, GETVAL) == 2);

    struct semid_ds sem;
    struct shmid_ds shm;
    MUST(semctl(set, 0, IPC_STAT, &sem) == 0 && shmctl(id, IPC_STAT, &shm) == 0);
    sem.sem_perm.uid = (uid_t)-1;
    shm.shm_perm.gid = (gid_t)-1;
    FAILS(semctl(set, 0, IPC_SET, &sem), EINVAL);
    FAILS(shmctl(id, IPC_SET, &shm), EINVAL);
    MUST(semctl(set, 0, IPC_STAT, &sem) == 0 && sem.sem_perm.uid == geteuid());

    time_t done = sem.sem_otime;
    int status;
    pid_t child = fork();
    if (child == 0) {
        struct sembuf op = {2, 1, SEM_UNDO};
        int failed = semop(set, &op, 1);
        while (time(NULL) <= done + 1) usleep(10000);
        _exit(failed);
    }
    MUST(waitpid(child, &status, 0) == child && status == 0);
    MUST(semctl(set, 2, GETVAL) == 0 && semctl(set, 0, IPC_STAT, &sem) == 0 && sem.sem_otime > done + 1);
    MUST(semctl(set, 0, IPC_RMID) == 0 && shmctl(id, IPC_RMID, NULL) == 0);
    return 0;
}
