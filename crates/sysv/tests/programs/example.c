// Producers and consumers, by System V shared memory and semaphores alone. Each makes its way to
// the objects by a key of ftok(3); who comes first makes them.

#include <stdio.h>
#include <stdlib.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROOM = 8, EACH = 2000, PRODUCERS = 3, CONSUMERS = 2 };
enum { MUTEX, FULL, EMPTY };

struct ring {
    unsigned in, out;
    long sum, taken;
    long items[ROOM];
};

static void failed(const char *what) {
    perror(what);
    exit(1);
}

static void change(int set, int number, int by) {
    struct sembuf op = {(unsigned short)number, (short)by, number == MUTEX ? SEM_UNDO : 0};
    if (semop(set, &op, 1)) failed("semop");
}

static struct ring *join(key_t key, int *set) {
    int id = shmget(key, sizeof(struct ring), IPC_CREAT | 0600);
    *set = semget(key, 3, IPC_CREAT | 0600);
    if (id < 0 || *set < 0) failed("get");
    struct ring *ring = shmat(id, NULL, 0);
    if (ring == (void *)-1) failed("shmat");
    return ring;
}

static void produce(key_t key, int who) {
    int set;
    struct ring *ring = join(key, &set);
    for (long i = 0; i < EACH; i++) {
        change(set, EMPTY, -1);
        change(set, MUTEX, -1);
        ring->items[ring->in++ % ROOM] = i * PRODUCERS + who;
        change(set, MUTEX, 1);
        change(set, FULL, 1);
    }
    exit(0);
}

static void consume(key_t key) {
    int set;
    struct ring *ring = join(key, &set);
    for (;;) {
        // Both at once, or neither.
        struct sembuf take[] = {{FULL, -1, 0}, {MUTEX, -1, SEM_UNDO}};
        if (semop(set, take, 2)) failed("semop");
        long item = ring->items[ring->out++ % ROOM];
        if (item >= 0) ring->sum += item, ring->taken++;
        change(set, MUTEX, 1);
        change(set, EMPTY, 1);
        if (item < 0) exit(0);
    }
}

int main(void) {
    int set, status;
    key_t key = (key_t)(0x47000000 + getpid());
    struct ring *ring = join(key, &set);
    if (semctl(set, MUTEX, SETVAL, 1) || semctl(set, EMPTY, SETVAL, ROOM)) failed("semctl");
    for (int i = 0; i < CONSUMERS; i++)
        if (fork() == 0) consume(key);
    for (int i = 0; i < PRODUCERS; i++)
        if (fork() == 0) produce(key, i);
    for (int i = 0; i < PRODUCERS; i++)
        if (wait(&status) < 0 || status) failed("a producer");
    for (int i = 0; i < CONSUMERS; i++) {
        change(set, EMPTY, -1);
        change(set, MUTEX, -1);
        ring->items[ring->in++ % ROOM] = -1;
        change(set, MUTEX, 1);
        change(set, FULL, 1);
    }
    for (int i = 0; i < CONSUMERS; i++)
        if (wait(&status) < 0 || status) failed("a consumer");
    long all = (long)EACH * PRODUCERS;
    if (ring->taken != all || ring->sum != all * (all - 1) / 2) {
        fprintf(stderr, "%ld items, sum %ld\n", ring->taken, ring->sum);
        return 1;
    }
    if (shmctl(shmget(key, 0, 0), IPC_RMID, NULL) || semctl(set, 0, IPC_RMID)) failed("remove");
    return shmdt(ring);
}
