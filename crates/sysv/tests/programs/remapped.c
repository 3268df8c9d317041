// What a program maps in the place of an attachment is its own: shmdt unmaps only what is attached.

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#define MUST(condition) \
    if (!(condition)) return fprintf(stderr, "line %d: " #condition ": %s\n", __LINE__, strerror(errno)), 1

enum { PAGE = 4096 };

static int is_there(void *at) {
    unsigned char in;
    return mincore(at, PAGE, &in) == 0;
}

static void *own(void *at, size_t pages) {
    return mmap(at, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static unsigned long attached(int id) {
    struct shmid_ds ds;
    return shmctl(id, IPC_STAT, &ds) ? 99 : ds.shm_nattch;
}

int main(void) {
    int id = shmget(IPC_PRIVATE, 4 * PAGE, 0600), small = shmget(IPC_PRIVATE, PAGE, 0600);
    MUST(id >= 0 && small >= 0);
    // A page of its own in the midst, and one that is not there.
    char *at = shmat(id, NULL, 0);
    MUST(at != (void *)-1 && own(at + PAGE, 1) == at + PAGE && munmap(at + 2 * PAGE, PAGE) == 0);
    strcpy(at + PAGE, "mine");
    MUST(shmdt(at) == 0 && !is_there(at) && !is_there(at + 3 * PAGE));
    MUST(strcmp(at + PAGE, "mine") == 0 && attached(id) == 0);
    MUST(munmap(at + PAGE, PAGE) == 0);
    // All of it.
    at = shmat(id, NULL, 0);
    MUST(at != (void *)-1 && own(at, 4) == at);
    strcpy(at, "mine");
    MUST(shmdt(at) == -1 && errno == EINVAL && strcmp(at, "mine") == 0 && attached(id) == 0);
    MUST(munmap(at, 4 * PAGE) == 0);
    // Another segment at the same place.
    at = shmat(id, NULL, 0);
    MUST(at != (void *)-1 && munmap(at, 4 * PAGE) == 0 && shmat(small, at, 0) == at);
    MUST(own(at + PAGE, 1) == at + PAGE);
    strcpy(at + PAGE, "mine");
    MUST(shmdt(at) == 0 && !is_there(at) && strcmp(at + PAGE, "mine") == 0);
    MUST(attached(id) == 0 && attached(small) == 0 && shmdt(at) == -1 && errno == EINVAL);
    MUST(munmap(at + PAGE, PAGE) == 0);
    // Another inside.
    at = shmat(id, NULL, 0);
    MUST(at != (void *)-1 && shmat(small, at + PAGE, SHM_REMAP) == at + PAGE);
    strcpy(at + PAGE, "small");
    MUST(shmdt(at) == 0 && !is_there(at) && !is_there(at + 3 * PAGE) && attached(id) == 0);
    MUST(strcmp(at + PAGE, "small") == 0 && attached(small) == 1);
    MUST(shmdt(at + PAGE) == 0 && attached(small) == 0);
    // Parts of it protected: they are attached as ever.
    at = shmat(id, NULL, 0);
    MUST(at != (void *)-1 && mprotect(at + PAGE, PAGE, PROT_READ) == 0);
    MUST(shmdt(at) == 0 && !is_there(at) && !is_there(at + PAGE) && !is_there(at + 3 * PAGE));
    MUST(shmctl(id, IPC_RMID, NULL) == 0 && shmctl(small, IPC_RMID, NULL) == 0);
    return 0;
}
