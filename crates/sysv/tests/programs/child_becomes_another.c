// A child that becomes another user before its first call goes on with its parent's objects.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(x) \
    do { \
        if (!(x)) fprintf(stderr, "%s:%d: not so: %s (errno %d)\n", __FILE__, __LINE__, #x, errno), exit(1); \
    } while (0)

static int adds(int set) { return semop(set, &(struct sembuf){0, 1, 0}, 1); }

int main(void) {
    if (geteuid() != 0) return 0;
    int set = semget(IPC_PRIVATE, 1, 0666), status;
    CHECK(set >= 0 && adds(set) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(setgid(65534) == 0 && setuid(65534) == 0);
        CHECK(adds(set) == 0);
        CHECK(semctl(set, 0, GETVAL) == 2);
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(semctl(set, 0, GETVAL) == 2);
    CHECK(semctl(set, 0, IPC_RMID) == 0);
}
