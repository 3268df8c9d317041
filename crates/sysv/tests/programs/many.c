// A process with more memory attached than a party's first page lists, whose children find the list
// of one segment full: how often they have it stands in a further page of theirs. It is counted
// over fork, fork of a child, shmdt, shmat and kill -9. One that finds no descriptor is counted
// nowhere, and has the memory all the same, also after its parent died: others see it so.

#include "attached.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { MANY = 450 };

// Says a letter, and waits for one.
static char next(int to, int from, char letter) {
    char answer = 0;
    if (write(to, &letter, 1) != 1 || read(from, &answer, 1) != 1) return 0;
    return answer;
}

// Counted nowhere: looks at the end.
static void hidden(const char *at, int to, int from) {
    char told = next(to, from, 'h');
    _exit(told != 'l' || next(to, from, sees(at) ? 'y' : 'n') != 'x');
}

// Does what it is told: one more at the same place, one less, a child of its own, a hidden one.
static void child(int id, char *at, int to, int from) {
    char *more = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (char told = next(to, from, 'b');; told = next(to, from, 'd'))
        switch (told) {
        case '+': more = shmat(id, NULL, 0); break;
        case '-': if (shmdt(more)) _exit(2); break;
        case 'f':
            if (fork() == 0) {
                next(to, from, 'g');
                _exit(sees(at) ? 0 : 3);
            }
            // Its child speaks for it.
            for (;;) pause();
        case 'h': {
            struct rlimit few = {3, 3};
            if (setrlimit(RLIMIT_NOFILE, &few)) _exit(4);
            if (fork() == 0) hidden(at, to, from);
            for (;;) pause();
        }
        case 's': if (!sees(at)) _exit(5); break;
        default: _exit(6);
        }
}

static int to[2], from[2];

static char tell(char letter) {
    char answer = 0;
    return write(to[1], &letter, 1) == 1 && read(from[0], &answer, 1) == 1 ? answer : '-';
}

static char begun(void) {
    char answer = 0;
    return read(from[0], &answer, 1) == 1 ? answer : '-';
}

static pid_t branch(int id, char *at) {
    pid_t pid = fork();
    if (pid == 0) child(id, at, from[1], to[0]);
    return pid;
}

static void end(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

int main(void) {
    static char *others[MANY];
    static int ids[MANY], made[8];
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    MUST(pipe(to) == 0 && pipe(from) == 0);
    for (int i = 0; i < MANY; i++) {
        MUST((ids[i] = shmget(IPC_PRIVATE, PAGE, 0600)) >= 0);
        MUST((others[i] = shmat(ids[i], NULL, 0)) != (void *)-1);
        *others[i] = (char)i;
    }
    int id = shmget(IPC_PRIVATE, PAGES * PAGE, 0600);
    char *at = shmat(id, NULL, 0);
    MUST(id >= 0 && at != (void *)-1);
    for (int i = 0; i < PAGES; i++) strcpy(at + i * PAGE, "the first");
    unsigned long one = 1 + fill();
    MUST(!getenv("GINNEL_DIR") || one > 100);
    MUST(attached(id) == one);

    // Once more, once less, and a kill.
    pid_t first = branch(id, at);
    MUST(begun() == 'b' && attached(id) == one + 1 && attached(ids[0]) == 2 && attached(ids[MANY - 1]) == 2);
    MUST(tell('+') == 'd' && attached(id) == one + 2);
    MUST(tell('+') == 'd' && attached(id) == one + 3);
    MUST(tell('-') == 'd' && attached(id) == one + 2);
    end(first);
    MUST(attached(id) == one && attached(ids[0]) == 1 && attached(ids[MANY - 1]) == 1);

    // A child's child has all that it had. Killed is the one in between, then the other.
    pid_t second = branch(id, at);
    MUST(begun() == 'b' && tell('+') == 'd' && tell('f') == 'g');
    MUST(attached(id) == one + 4 && attached(ids[MANY - 1]) == 3);
    end(second);
    MUST(attached(id) == one + 2 && attached(ids[MANY - 1]) == 2);
    MUST(write(to[1], "l", 1) == 1);
    int status = -1;
    MUST(waitpid(-1, &status, 0) > 0 && status == 0);
    MUST(attached(id) == one && attached(ids[MANY - 1]) == 1);

    // One that nobody counts outlives its parent, and all others let go of the memory.
    pid_t third = branch(id, at);
    MUST(begun() == 'b' && tell('h') == 'h');
    end(third);
    MUST(shmctl(id, IPC_RMID, NULL) == 0 && shmdt(at) == 0);
    for (int i = 0; i < MANY; i++) MUST(shmctl(ids[i], IPC_RMID, NULL) == 0 && shmdt(others[i]) == 0);
    for (int i = 0; i < 8; i++) {
        made[i] = shmget(IPC_PRIVATE, PAGES * PAGE, 0600);
        char *new = shmat(made[i], NULL, 0);
        MUST(new != (void *)-1);
        for (int page = 0; page < PAGES; page++) strcpy(new + page * PAGE, "another's");
        MUST(shmdt(new) == 0);
    }
    MUST(tell('l') == 'y' && write(to[1], "x", 1) == 1);
    MUST(waitpid(-1, &status, 0) > 0 && status == 0);
    for (int i = 0; i < 8; i++) shmctl(made[i], IPC_RMID, NULL);
    return 0;
}
