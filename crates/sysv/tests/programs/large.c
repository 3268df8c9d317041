// More memory than a segment of 256 MiB has: two processes share it by its key, wherever it is.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(condition) \
    if (!(condition)) return fprintf(stderr, "line %d: " #condition "\n", __LINE__), perror(""), 1

int main(void) {
    size_t size = (size_t)300 << 20;
    key_t key = 0x51500000 + getpid();
    int id = shmget(key, size, IPC_CREAT | IPC_EXCL | 0600);
    MUST(id >= 0);
    char *at = shmat(id, NULL, 0);
    MUST(at != (void *)-1);
    strcpy(at + size - 100, "at its end");
    if (fork() == 0) {
        // By its key alone, too.
        int same = shmget(key, 0, 0);
        char *there = shmat(same, NULL, SHM_RDONLY);
        _exit(there == (void *)-1 || strcmp(there + size - 100, "at its end") != 0);
    }
    int status;
    MUST(wait(&status) > 0 && status == 0);
    MUST(shmget(key, size, IPC_CREAT | IPC_EXCL | 0600) == -1);
    MUST(shmctl(id, IPC_RMID, NULL) == 0);
    MUST(shmdt(at) == 0);
    MUST(shmget(key, 0, 0) == -1);
    return 0;
}
