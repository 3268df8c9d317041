// Handlers of signals that come while semop sleeps: as for the kernel, the call is over before any of
// them runs. One that jumps away leaves no sleeper that takes what comes next.

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(condition) \
    if (!(condition)) return fprintf(stderr, "line %d: " #condition ": %s\n", __LINE__, strerror(errno)), 1

static sigjmp_buf out, inner;
static int set;
static volatile int kind;

static int add(short by) { return semop(set, &(struct sembuf){0, by, 0}, 1); }
static int value(void) { return semctl(set, 0, GETVAL); }

static void handle(int number) {
    (void)number;
    if (kind == 0) siglongjmp(out, 1);
    if (kind == 1 && sigsetjmp(inner, 1) == 0) siglongjmp(inner, 1);
    if (kind == 2) add(1);
}

static void later(void) {
    struct itimerval in = {{0, 0}, {0, 20000}};
    setitimer(ITIMER_REAL, &in, NULL);
}

// Another process, so that whoever stands in the queue is served.
static int other_adds(void) {
    int status;
    pid_t child = fork();
    if (child == 0) _exit(add(1) != 0);
    return waitpid(child, &status, 0) == child && status == 0;
}

int main(void) {
    set = semget(IPC_PRIVATE, 1, 0600);
    MUST(set >= 0);
    struct sigaction action = {.sa_handler = handle};
    MUST(sigaction(SIGALRM, &action, NULL) == 0);
    // It jumps away, again and again.
    for (volatile int i = 0; i < 30; i++) {
        kind = 0;
        if (sigsetjmp(out, 1) == 0) {
            later();
            add(-1);
            return fprintf(stderr, "it came back\n"), 1;
        }
        int other = i % 10 == 0;
        MUST(other ? other_adds() : semctl(set, 0, GETNCNT) == 0 && add(1) == 0);
        MUST(value() == 1 && add(-1) == 0);
    }
    // It jumps within itself: the call is over all the same.
    kind = 1;
    later();
    MUST(add(-1) == -1 && errno == EINTR && semctl(set, 0, GETNCNT) == 0);
    MUST(other_adds() && value() == 1 && add(-1) == 0);
    // It does what the call waits for: that was over before.
    kind = 2;
    later();
    MUST(add(-1) == -1 && errno == EINTR && value() == 1 && add(-1) == 0);
    // Stopped and continued: over, too (signal(7)).
    int status;
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(add(-1) == -1 && errno == EINTR ? 7 : 1);
    }
    for (int i = 0; i < 10000 && semctl(set, 0, GETNCNT) != 1; i++) usleep(1000);
    usleep(20000);
    MUST(kill(child, SIGSTOP) == 0 && waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    MUST(kill(child, SIGCONT) == 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
    MUST(semctl(set, 0, IPC_RMID) == 0);
    return 0;
}
