// Two programs that meet by a System V key, and hand numbers to and fro in shared memory, each woken by
// the other's semop. `sysv first KEY ROUNDS`, and `sysv second KEY ROUNDS` in the other machine.

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sem.h>
#include <sys/shm.h>

enum { SIZE = 100000 };

static void failed(const char *what) {
    perror(what);
    exit(1);
}

static void change(int set, unsigned short number, short by) {
    struct sembuf op = {number, by, 0};
    while (semop(set, &op, 1))
        if (errno != EINTR) failed("semop");
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    int first = strcmp(argv[1], "first") == 0, rounds = atoi(argv[3]);
    key_t key = (key_t)strtol(argv[2], NULL, 0);
    int id = shmget(key, SIZE, IPC_CREAT | 0600), set = semget(key, 2, IPC_CREAT | 0600);
    if (id < 0 || set < 0) failed("get");
    unsigned char *at = shmat(id, NULL, 0);
    if (at == (void *)-1) failed("shmat");
    const unsigned char *read_only = shmat(id, NULL, SHM_RDONLY);
    if (read_only == (void *)-1) failed("shmat to read");
    for (int i = 0; i < rounds; i++) {
        if (first) {
            memset(at + 5, i, SIZE - 5);
            change(set, 0, 1);
            change(set, 1, -1);
            if (read_only[SIZE - 1] != (unsigned char)(i * 3)) return fprintf(stderr, "round %d\n", i), 1;
        } else {
            change(set, 0, -1);
            if (read_only[SIZE / 2] != (unsigned char)i) return fprintf(stderr, "round %d\n", i), 1;
            memset(at + 5, i * 3, SIZE - 5);
            change(set, 1, 1);
        }
    }
    struct shmid_ds ds;
    if (shmctl(id, IPC_STAT, &ds)) failed("IPC_STAT");
    printf("%d rounds, %d bytes\n", rounds, (int)ds.shm_segsz);
    if (shmdt(at) || shmdt(read_only)) failed("shmdt");
    return 0;
}
