// Makes one of each, with a key that nobody else has.

#include <stdio.h>
#include <sys/sem.h>
#include <sys/shm.h>

int main(void) {
    int flags = IPC_CREAT | IPC_EXCL | 0600;
    if (shmget(0x1234, 5000, flags) < 0) return perror("shmget"), 1;
    if (semget(0x1234, 3, flags) < 0) return perror("semget"), 1;
    return 0;
}
