// Random System V calls of several processes, each with two threads: forks, kills, execs, signals
// and threads that sleep among them. Says on standard output what each call answered, in words that
// do not depend on ids, process numbers, addresses or clocks: two runs with one seed say the same
// wherever the calls mean the same.
//
// One process, the coordinator, decides what is done next; the others, the workers, do it. So calls
// come one after the other, but for those that sleep.

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 10, ACTORS = WORKERS * 2, SLOTS = 12, ATTACHED = 16, OPS = 4, MOST = 8 };
enum { FIRST_FD = 100, STRANGER = 65534 };

union semun {
    int val;
    struct semid_ds *buf;
    unsigned short *array;
};

enum op {
    SHMGET, SHMAT, SHMDT, SHMCTL, POKE, PEEK, SEMGET, SEMOP, SEMCTL,
    FORK, EXEC, LEAVE, HELLO, LAST
};

struct command {
    enum op op;
    int as; // another user's number, or 0
    long a, b, c, d;
    int count;
    struct sembuf ops[OPS];
    unsigned short values[MOST];
    int timed;
    struct timespec time;
};

struct reply {
    long ret;
    int error;
    long more[12];
};

// ---------------------------------------------------------------------------------- workers

static struct attached {
    char *at;
    size_t size;
    int read_only;
} attached[ATTACHED];

static int worker;
static const char *self;

static int descriptor(int actor, int end) {
    return FIRST_FD + actor * 2 + end;
}

static void handler(int signal) {
    (void)signal;
}

static void stat_shm(struct reply *to, const struct shmid_ds *ds) {
    long more[] = {
        ds->shm_perm.mode, (long)ds->shm_perm.uid, (long)ds->shm_perm.gid, (long)ds->shm_segsz,
        (long)ds->shm_nattch, ds->shm_cpid, ds->shm_lpid, ds->shm_atime != 0, ds->shm_dtime != 0,
        ds->shm_ctime != 0, ds->shm_perm.__key, (long)ds->shm_perm.cuid};
    memcpy(to->more, more, sizeof more);
}

static void stat_sem(struct reply *to, const struct semid_ds *ds) {
    long more[] = {
        ds->sem_perm.mode, (long)ds->sem_perm.uid, (long)ds->sem_perm.gid, (long)ds->sem_nsems,
        0, 0, 0, ds->sem_otime != 0, 0, ds->sem_ctime != 0, ds->sem_perm.__key,
        (long)ds->sem_perm.cuid};
    memcpy(to->more, more, sizeof more);
}

static long attach(const struct command *c, struct reply *to) {
    int at = 0;
    while (at < ATTACHED && attached[at].at) at++;
    if (at == ATTACHED) return -2;
    char *base = (char *)0x600000000000 + ((uintptr_t)c->d << 28), *where = NULL;
    int flags = (int)c->b;
    switch (c->c) {
    case 1: where = base + 1; break;
    case 2: where = base; break;
    case 3: where = base + 123; flags |= SHM_RND; break;
    case 4: flags |= SHM_REMAP; break;
    case 5: where = base + 4096 + 77; flags |= SHM_RND; break;
    }
    char *got = shmat((int)c->a, where, flags);
    if (got == (void *)-1) return -1;
    struct shmid_ds ds;
    int error = errno;
    int seen = shmctl((int)c->a, IPC_STAT, &ds);
    errno = error;
    attached[at] = (struct attached){got, seen == 0 ? ds.shm_segsz : 1, (flags & SHM_RDONLY) != 0};
    to->more[0] = where ? got - base : (((uintptr_t)got & 4095) == 0);
    to->more[1] = at;
    return 0;
}

static long control_shm(const struct command *c, struct reply *to) {
    struct shmid_ds ds;
    memset(&ds, 0, sizeof ds);
    if (c->b == IPC_SET) {
        ds.shm_perm.mode = (unsigned short)c->c;
        ds.shm_perm.uid = (uid_t)c->d;
        ds.shm_perm.gid = (gid_t)c->d;
    }
    long ret = shmctl((int)c->a, (int)c->b, &ds);
    if (c->b == IPC_STAT && ret == 0) stat_shm(to, &ds);
    return c->b == IPC_INFO || c->b == SHM_INFO ? ret < 0 ? ret : 0 : ret;
}

static long control_sem(const struct command *c, struct reply *to) {
    struct semid_ds ds;
    struct seminfo info;
    unsigned short values[MOST] = {0};
    union semun arg = {0};
    memset(&ds, 0, sizeof ds);
    int cmd = (int)c->c;
    switch (cmd) {
    case SETVAL: arg.val = (int)c->d; break;
    case GETALL: arg.array = values; break;
    case SETALL: memcpy(values, c->values, sizeof values), arg.array = values; break;
    case IPC_SET:
        ds.sem_perm.mode = (unsigned short)c->d;
        ds.sem_perm.uid = ds.sem_perm.gid = (uid_t)c->count;
        arg.buf = &ds;
        break;
    case IPC_INFO: case SEM_INFO: arg.buf = (struct semid_ds *)(void *)&info; break;
    default: arg.buf = &ds;
    }
    long ret = semctl((int)c->a, (int)c->b, cmd, arg);
    if (cmd == IPC_STAT && ret == 0) stat_sem(to, &ds);
    if (cmd == GETALL && ret == 0)
        for (int i = 0; i < MOST; i++) to->more[i] = values[i];
    if (cmd == IPC_INFO && ret >= 0)
        to->more[0] = info.semmsl, to->more[1] = info.semopm, to->more[2] = info.semvmx, ret = 0;
    return cmd == SEM_INFO && ret > 0 ? 0 : ret;
}

static void work(int actor);

static void *other_thread(void *arg) {
    work((int)(intptr_t)arg);
    return NULL;
}

static void begin(int which) {
    pthread_t thread;
    worker = which;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 << 10);
    if (pthread_create(&thread, &small, other_thread, (void *)(intptr_t)(which * 2 + 1))) _exit(9);
    work(which * 2);
}

static long branch(const struct command *c) {
    pid_t child = fork();
    if (child == 0) begin((int)c->a), _exit(0);
    return child;
}

static long perform(const struct command *c, struct reply *to) {
    struct attached *one = &attached[c->a % ATTACHED];
    switch (c->op) {
    case SHMGET: return shmget((key_t)c->a, (size_t)c->b, (int)c->c);
    case SHMAT: return attach(c, to);
    case SHMDT:
        if (c->b) return shmdt((void *)c->b);
        if (!one->at) return -2;
        long ret = shmdt(one->at);
        if (ret == 0) one->at = NULL;
        return ret;
    case SHMCTL: return control_shm(c, to);
    case POKE:
        if (!one->at || one->read_only) return -2;
        one->at[(size_t)c->b % one->size] = (char)c->c;
        return 0;
    case PEEK: return one->at ? one->at[(size_t)c->b % one->size] : -2;
    case SEMGET: return semget((key_t)c->a, (int)c->b, (int)c->c);
    case SEMOP: {
        struct sembuf ops[OPS];
        memcpy(ops, c->ops, sizeof ops);
        if (c->timed) return semtimedop((int)c->a, ops, (size_t)c->count, &c->time);
        return semop((int)c->a, ops, (size_t)c->count);
    }
    case SEMCTL: return control_sem(c, to);
    case FORK: return branch(c);
    case EXEC: {
        char number[16];
        snprintf(number, sizeof number, "%d", worker);
        execl(self, self, "worker", number, (char *)NULL);
        return -1;
    }
    case LEAVE: _exit(0);
    default: return -3;
    }
}

static void work(int actor) {
    int fd = descriptor(actor, 1);
    struct reply hello = {.ret = getpid(), .more = {syscall(SYS_gettid)}};
    if (send(fd, &hello, sizeof hello, 0) < 0) _exit(8);
    struct command c;
    while (recv(fd, &c, sizeof c, 0) == sizeof c) {
        struct reply to = {0};
        // One thread's user, not the process's.
        if (c.as) syscall(SYS_setresuid, -1, c.as, -1);
        errno = 0;
        to.ret = perform(&c, &to);
        to.error = to.ret == -1 ? errno : 0;
        if (c.as) syscall(SYS_setresuid, -1, 0, -1);
        if (send(fd, &to, sizeof to, 0) < 0) break;
    }
    _exit(0);
}

// ------------------------------------------------------------------------------ coordinator

static uint64_t state;

static uint64_t next(void) {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static long below(long n) {
    return (long)(next() % (uint64_t)n);
}

static int one_in(long n) {
    return below(n) == 0;
}

struct known {
    int used, id;
};

static struct known shms[SLOTS], sems[SLOTS];
static pid_t pids[WORKERS], ever[256];
static long tids[ACTORS];
static int alive[WORKERS], asleep[ACTORS], undone[WORKERS], evers;
static struct command doing[ACTORS];
// One that had anything to undo has ended: Linux takes that for an operation, even where nothing was
// left to be undone, so the time of the last one says nothing any more.
static int undid;
// Somebody has ended, or begun anew. Who detached so is known when the next one looks, and not whether
// another did after it.
static int departed;
static int settling = 0, dying = 350, step;

static void say(const char *format, ...) {
    va_list list;
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    fflush(stdout);
}

// Process numbers as the order in which they began.
static long person(long pid) {
    if (pid == 0) return 0;
    for (int i = 0; i < evers; i++)
        if (ever[i] == pid) return i + 1;
    return -1;
}

static void note(const struct command *c, struct known *slots, long id) {
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].used && slots[i].id == id) {
            say(" same as %d", i);
            return;
        }
    int at = (int)(c->d % SLOTS);
    slots[at] = (struct known){1, (int)id};
    say(" is %d", at);
}

static void told(int actor, const struct reply *r) {
    const struct command *c = &doing[actor];
    long ret = r->ret;
    if (ret == -1) {
        say(" failed: %s\n", strerrorname_np(r->error));
        return;
    }
    const long *more = r->more;
    switch (c->op) {
    case SHMGET: note(c, shms, ret); break;
    case SEMGET: note(c, sems, ret); break;
    case SHMAT: say(" %ld: at %ld as %ld", ret, more[0], more[1]); break;
    case SHMCTL:
        say(" %ld", ret);
        if (c->b == IPC_STAT)
            say(" mode %lo of %ld:%ld by %ld, %ld bytes, %ld attached, pids %ld %ld, times %ld %ld %ld, key %ld",
                more[0], more[1], more[2], more[11], more[3], more[4], person(more[5]),
                departed ? -1 : person(more[6]), more[7], more[8], more[9], more[10]);
        break;
    case SEMCTL:
        say(" %ld", c->c == GETPID ? person(ret) : ret);
        if (c->c == IPC_STAT)
            say(" mode %lo of %ld:%ld by %ld, %ld semaphores, times %ld %ld, key %ld", more[0],
                more[1], more[2], more[11], more[3], undid ? -1 : more[7], more[9], more[10]);
        if (c->c == GETALL || c->c == IPC_INFO)
            for (int i = 0; i < MOST; i++) say(" %ld", more[i]);
        break;
    case FORK: break;
    default: say(" %ld", ret);
    }
    say("\n");
}

static int heard(int actor, int ms, struct reply *r) {
    struct pollfd p = {.fd = descriptor(actor, 0), .events = POLLIN};
    return poll(&p, 1, ms) == 1 && recv(p.fd, r, sizeof *r, MSG_DONTWAIT) == sizeof *r;
}

static void hang(int actor) {
    say(" HANGS (actor %d)\n", actor);
    for (int w = 0; w < WORKERS; w++)
        if (alive[w]) kill(pids[w], SIGKILL);
    exit(3);
}

// Does its thread sleep in the call? Where the kernel does not tell, it is taken to.
static int sleeps_now(int actor) {
    char path[96], text[512] = "";
    for (int part = 0; part < 2; part++) {
        snprintf(path, sizeof path, "/proc/%d/task/%ld/%s", pids[actor / 2], tids[actor], part ? "syscall" : "stat");
        FILE *file = fopen(path, "r");
        if (!file) return 1;
        char *read = fgets(text, sizeof text, file);
        fclose(file);
        if (!read) return 1;
        char *state = strrchr(text, ')');
        if (!part && state && state[2] != 'S') return 0;
    }
    long call = atol(text);
    // In the kernel; and where the library sleeps that carries it.
    return call == SYS_semtimedop || call == SYS_semop || call == SYS_epoll_pwait2 || call == SYS_ppoll;
}

// Waits until a thread answers, or sleeps in its call and goes on doing so.
static int answers(int actor, struct reply *r) {
    for (int in_a_row = 0, ms = 0; in_a_row < 3 && ms < 20000; ms += 2) {
        if (heard(actor, 2, r)) return 1;
        in_a_row = sleeps_now(actor) ? in_a_row + 1 : 0;
    }
    return heard(actor, 0, r);
}

// Says who of those that sleep was woken.
static void settle(int ms) {
    int any = 0;
    for (int a = 0; a < ACTORS; a++) any |= asleep[a];
    if (!any) return;
    usleep((useconds_t)ms * 1000);
    for (int a = 0; a < ACTORS; a++) {
        struct reply r;
        if (!asleep[a] || !answers(a, &r)) continue;
        asleep[a] = 0;
        say("    actor %d wakes:", a);
        told(a, &r);
    }
}

static void hello(int actor) {
    struct reply r;
    if (!heard(actor, 10000, &r)) hang(actor);
    pids[actor / 2] = (pid_t)r.ret;
    tids[actor] = r.more[0];
}

static void arrived(int w) {
    hello(w * 2);
    hello(w * 2 + 1);
    alive[w] = 1;
    if (person(pids[w]) < 0) ever[evers++ % 256] = pids[w];
}

// Until nothing is left of it: of a process that is dead already, threads may be on their way still.
// (Nobody waits for it: who ignores SIGCHLD need not.)
static void wait_end(int w) {
    for (int i = 0; i < 10000 && kill(pids[w], 0) == 0; i++) usleep(1000);
    alive[w] = 0;
    undid |= undone[w];
    departed = 1;
    for (int a = w * 2; a < w * 2 + 2; a++) {
        struct reply r;
        asleep[a] = 0;
        while (heard(a, 0, &r)) {}
    }
}

static void order(int actor, const struct command *c, int may_sleep);

// So that whatever is behind the calls is there before anybody becomes another user.
static void warm(int w) {
    struct command c = {.op = SEMGET, .a = 0x6fff, .b = 1};
    say("worker %d:", w);
    order(w * 2, &c, 0);
}

static void order(int actor, const struct command *c, int may_sleep) {
    doing[actor] = *c;
    if (send(descriptor(actor, 0), c, sizeof *c, 0) < 0) hang(actor);
    if (c->op == LEAVE) {
        say(" leaves\n");
        wait_end(actor / 2);
        settle(dying);
        return;
    }
    if (c->op == EXEC) {
        say(" begins anew\n");
        departed = 1;
        arrived(actor / 2);
        settle(dying);
        warm(actor / 2);
        return;
    }
    struct reply r;
    if (!(may_sleep ? answers(actor, &r) : heard(actor, 20000, &r))) {
        if (!may_sleep) hang(actor);
        asleep[actor] = 1;
        say(" sleeps\n");
    } else {
        told(actor, &r);
        // What a process has to undo is its own, and stays over its exec.
        if (c->op == FORK && r.ret > 0) undone[c->a] = 0, arrived((int)c->a), warm((int)c->a);
    }
    settle(settling);
}

static int pick(struct known *slots) {
    for (int i = 0; i < 40 && !one_in(30); i++) {
        int at = (int)below(SLOTS);
        if (slots[at].used) return at;
    }
    return (int)below(SLOTS);
}

static int id_of(struct known *slots, int at) {
    return slots[at].used ? slots[at].id : at % 2 ? -1 : 1000000007;
}

static const int flags_of_get[] = {IPC_CREAT, IPC_CREAT, IPC_CREAT | IPC_EXCL, 0};
static const int modes[] = {0600, 0600, 0644, 0666, 0666, 0400, 0200};

static struct command get(int sem) {
    static const long sizes[] = {1, 4096, 5000, 70000, 0};
    struct command c = {.op = sem ? SEMGET : SHMGET, .d = below(SLOTS)};
    c.a = one_in(3) ? IPC_PRIVATE : 0x7000 + below(4);
    c.b = sem ? (one_in(12) ? below(3) * 20000 - 1 : below(MOST) + (one_in(3) ? 0 : 1)) : sizes[below(5)];
    if (sem && c.b > MOST && c.b < 30000) c.b = MOST;
    c.c = flags_of_get[below(4)] | modes[below(7)];
    return c;
}

static struct command operate(int slot, int actor) {
    struct command c = {.op = SEMOP, .a = id_of(sems, slot), .count = 1 + (int)below(3)};
    if (one_in(2)) c.count = 1;
    if (one_in(60)) c.count = 0;
    for (int i = 0; i < c.count; i++) {
        struct sembuf *op = &c.ops[i];
        op->sem_num = (unsigned short)below(one_in(15) ? 12 : 3);
        op->sem_op = (short)(below(5) - 2);
        if (one_in(40)) op->sem_op = (short)(one_in(2) ? 32767 : -32768);
        op->sem_flg = (short)((one_in(3) ? IPC_NOWAIT : 0) | (one_in(3) ? SEM_UNDO : 0));
        if (op->sem_flg & SEM_UNDO) undone[actor / 2] = 1;
    }
    if (one_in(4)) {
        c.timed = 1;
        // Until then, and no longer; or for longer than this runs.
        c.time = (struct timespec){one_in(3) ? 1000 : 0, one_in(2) ? 0 : 10000000};
        if (one_in(20)) c.time.tv_nsec = -1;
    }
    return c;
}

static struct command control(int slot) {
    static const int cmds[] = {GETVAL, GETVAL, SETVAL, SETVAL, GETALL, GETALL, SETALL, GETPID, GETPID,
        GETNCNT, GETZCNT, GETNCNT, GETZCNT, IPC_STAT, IPC_STAT, IPC_SET, IPC_INFO, 77};
    struct command c = {.op = SEMCTL, .a = id_of(sems, slot)};
    c.b = below(one_in(15) ? 12 : 3) - one_in(30);
    c.c = cmds[below(18)];
    c.d = c.c == IPC_SET ? modes[below(7)] : one_in(20) ? (one_in(2) ? -1 : 32768) : below(4);
    c.count = one_in(4) ? STRANGER : 0;
    for (int i = 0; i < MOST; i++) c.values[i] = (unsigned short)(one_in(60) ? 40000 : below(3));
    if (one_in(14)) c.c = IPC_RMID;
    return c;
}

static struct command memory(void) {
    static const int cmds[] = {IPC_STAT, IPC_STAT, IPC_STAT, IPC_STAT, IPC_SET, IPC_RMID, SHM_LOCK, SHM_UNLOCK, IPC_INFO, 77};
    int slot = pick(shms);
    struct command c = {.a = below(3)};
    switch (below(10)) {
    case 0: case 1: case 2:
        c.op = SHMAT, c.a = id_of(shms, slot), c.d = below(6);
        c.b = (one_in(4) ? SHM_RDONLY : 0);
        c.c = one_in(2) ? 0 : below(6);
        break;
    case 3: case 4: c.op = SHMDT, c.b = one_in(10) ? 0x12345000 + below(2) : 0; break;
    case 5: c.op = POKE, c.b = below(4), c.c = below(100); break;
    case 6: c.op = PEEK, c.b = below(4); break;
    default:
        c.op = SHMCTL, c.a = id_of(shms, slot), c.b = cmds[below(10)];
        c.c = modes[below(7)];
        c.d = one_in(4) ? STRANGER : 0;
    }
    return c;
}

static const char *name_of(enum op op) {
    static const char *const names[] = {"shmget", "shmat", "shmdt", "shmctl", "poke", "peek", "semget", "semop",
        "semctl", "fork", "exec", "exit", "hello"};
    return names[op];
}

static void show(int actor, const struct command *c, int slot) {
    say("%d actor %d %s%s", step, actor, name_of(c->op), c->as ? " as another" : "");
    if (slot >= 0) say(" [%d]", slot);
    if (c->op == SEMOP) {
        for (int i = 0; i < c->count; i++)
            say(" (%d %d %x)", c->ops[i].sem_num, c->ops[i].sem_op, (unsigned)c->ops[i].sem_flg);
        if (c->timed) say(" within %ld %ld", (long)c->time.tv_sec, c->time.tv_nsec);
    } else if (c->op == SHMAT || c->op == SHMCTL || c->op == SEMCTL) {
        say(" %ld %ld %ld", c->b, c->c, c->d);
    } else {
        say(" %ld %ld %lo", c->a, c->b, c->c);
    }
    say(":");
}

static int slot_of(struct known *slots, long id) {
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].used && slots[i].id == id) return i;
    return -1;
}

static int anybody_sleeps(void) {
    for (int a = 0; a < ACTORS; a++)
        if (asleep[a]) return 1;
    return 0;
}

static void life(void) {
    int living = 0, w = (int)below(WORKERS), free_at = -1;
    for (int i = 0; i < WORKERS; i++) {
        living += alive[i];
        if (!alive[i]) free_at = i;
    }
    if (!alive[w]) return;
    int actor = w * 2 + (int)below(2), both = asleep[w * 2] || asleep[w * 2 + 1];
    struct command c = {.op = FORK, .a = free_at};
    switch (below(4)) {
    case 0:
        if (free_at < 0 || asleep[actor] || evers > 250) return;
        break;
    case 1:
        if (living < 2) return;
        say("%d worker %d is killed\n", step, w);
        kill(pids[w], SIGKILL);
        wait_end(w);
        settle(dying);
        return;
    case 2:
        if (living < 2 || asleep[actor]) return;
        c.op = LEAVE;
        break;
    default:
        if (both) return;
        c.op = EXEC;
    }
    show(actor, &c, -1);
    order(actor, &c, 0);
}

static void one_step(void) {
    int actor = (int)below(ACTORS);
    if (one_in(25)) {
        life();
        return;
    }
    while (!alive[actor / 2]) actor = (int)below(ACTORS);
    if (asleep[actor]) {
        if (!one_in(6)) return;
        say("%d actor %d is interrupted\n", step, actor);
        syscall(SYS_tgkill, pids[actor / 2], tids[actor], SIGUSR1);
        settle(settling);
        return;
    }
    struct command c;
    int slot = pick(sems), may_sleep = 0;
    switch (step < 8 ? step % 2 : below(12)) {
    case 0: c = get(0); break;
    case 1: c = get(1); break;
    case 2: case 3: case 4: c = memory(); break;
    case 5: case 6: case 7: c = control(slot); break;
    default: c = operate(slot, actor), may_sleep = !c.timed || c.time.tv_sec;
    }
    if (c.op != SEMOP && c.op != SHMDT && one_in(8) && !anybody_sleeps()) c.as = STRANGER;
    struct known *slots = c.op == SEMOP || c.op == SEMCTL ? sems : shms;
    int refers = c.op == SEMOP || c.op == SEMCTL || c.op == SHMAT || c.op == SHMCTL;
    show(actor, &c, refers ? slot_of(slots, c.a) : -1);
    order(actor, &c, may_sleep);
}

static void pairs(void) {
    for (int a = 0; a < ACTORS; a++) {
        int two[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, two)) exit(4);
        dup2(two[0], descriptor(a, 0)), close(two[0]);
        dup2(two[1], descriptor(a, 1)), close(two[1]);
    }
}

int main(int argc, char **argv) {
    struct sigaction action = {.sa_handler = handler};
    self = "/proc/self/exe";
    sigaction(SIGUSR1, &action, NULL);
    signal(SIGCHLD, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    if (argc == 3 && strcmp(argv[1], "worker") == 0) {
        begin(atoi(argv[2]));
        return 0;
    }
    if (argc < 3) return 2;
    state = strtoull(argv[1], NULL, 10);
    int steps = atoi(argv[2]);
    if (argc > 3) settling = atoi(argv[3]);
    // Where it may: namespaces of its own, so that nothing stays.
    if (unshare(CLONE_NEWIPC)) fprintf(stderr, "no namespace of its own: objects may stay\n");
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pairs();
    for (int w = 0; w < 3; w++) {
        pid_t child = fork();
        if (child == 0) begin(w), _exit(0);
        arrived(w);
        warm(w);
    }
    for (step = 0; step < steps; step++) one_step();
    for (int w = 0; w < WORKERS; w++)
        if (alive[w]) kill(pids[w], SIGKILL);
    for (int w = 0; w < WORKERS; w++)
        if (alive[w]) wait_end(w);
    return 0;
}
