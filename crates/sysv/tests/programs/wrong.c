// A library that is preloaded to be found out: one of the calls is wrong.
//
// WRONG=value: a semaphore shows one more than it has, if it has 2. undo: nothing is undone.
// attached: one attachment too few is shown, of two. mode: others may read what only its owner may.

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

static int is(const char *what) {
    const char *wrong = getenv("WRONG");
    return wrong && strcmp(wrong, what) == 0;
}

int semctl(int id, int number, int command, ...) {
    va_list list;
    va_start(list, command);
    void *argument = va_arg(list, void *);
    va_end(list);
    int value = (int)syscall(SYS_semctl, id, number, command, argument);
    return command == GETVAL && value == 2 && is("value") ? 3 : value;
}

int semop(int id, struct sembuf *ops, size_t count) {
    struct sembuf mine[8];
    memcpy(mine, ops, (count > 8 ? 8 : count) * sizeof *ops);
    for (size_t i = 0; i < count && i < 8 && is("undo"); i++) mine[i].sem_flg &= (short)~SEM_UNDO;
    return (int)syscall(SYS_semtimedop, id, mine, count, NULL);
}

int shmctl(int id, int command, struct shmid_ds *ds) {
    int done = (int)syscall(SYS_shmctl, id, command, ds);
    if (done == 0 && command == IPC_STAT && is("attached") && ds->shm_nattch == 2) ds->shm_nattch = 1;
    return done;
}

int shmget(key_t key, size_t size, int flags) {
    if (is("mode") && flags & IPC_CREAT) flags |= 0044;
    return (int)syscall(SYS_shmget, key, size, flags);
}
