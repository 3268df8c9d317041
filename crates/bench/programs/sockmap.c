// What the kernel itself offers beside TCP: a sockmap. A program of type SOCK_OPS enters every connection over IPv4 of one
// cgroup into a hash of sockets, by its two addresses; one of type SK_MSG hands what a socket sends straight to the queue of the
// socket at the other end. Where that one is not in the hash, TCP carries the bytes.
//   sockmap run COMMAND …        runs a command in such a cgroup, and takes everything back at its end
//   sockmap hold                 makes the cgroup, says "cgroup PATH", and takes everything back on SIGTERM or SIGINT,
//                                or when its parent ends
//   sockmap in CGROUP COMMAND …  becomes a command in the cgroup of another that holds it
//   sockmap clear                takes back what a holder left that was killed outright
// The first two say at their end what was carried how: "result redirected=BYTES passed=BYTES tcp_received=BYTES tcp_acked=BYTES".
// Needs root, Linux 5.14, cgroup v2, and CONFIG_CGROUP_BPF and CONFIG_BPF_STREAM_PARSER in the kernel.
//
// The programs are written in the machine's own instructions, so that a C compiler is all that it takes.
#define _GNU_SOURCE
#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <mntent.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CONNECTIONS = 65536, MOST_CPUS = 4096, CLOSED = 7 /* TCP_CLOSE, netinet/tcp.h */ };

// A socket's key: its own address first. Ports are in the machine's order.
struct key { uint32_t local, remote, local_port, remote_port; };

// What was carried how, in bytes; of one processor.
struct counts { uint64_t redirected, passed, tcp_received, tcp_acked; };

// The instructions that are used here (linux/bpf.h; the kernel's Documentation/bpf/standardization/instruction-set.rst).
#define I(operation, to, from, offset, number) \
    ((struct bpf_insn){.code = (operation), .dst_reg = (to), .src_reg = (from), .off = (int16_t)(offset), .imm = (number)})
#define MOVE(to, from) I(BPF_ALU64 | BPF_MOV | BPF_X, to, from, 0, 0)
#define SET(to, number) I(BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, number)
#define ADD(to, number) I(BPF_ALU64 | BPF_ADD | BPF_K, to, 0, 0, number)
#define FROM_NETWORK(to) I(BPF_ALU | BPF_END | BPF_TO_BE, to, 0, 0, 32)
#define LOAD(size, to, from, offset) I(BPF_LDX | BPF_MEM | (size), to, from, offset, 0)
#define STORE(size, to, offset, from) I(BPF_STX | BPF_MEM | (size), to, from, offset, 0)
#define ATOMIC_ADD(to, offset, from) I(BPF_STX | BPF_ATOMIC | BPF_DW, to, from, offset, BPF_ADD)
#define MAP(to, fd) I(BPF_LD | BPF_DW | BPF_IMM, to, BPF_PSEUDO_MAP_FD, 0, fd), I(0, 0, 0, 0, 0) // two words
#define CALL(function) I(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_##function)
#define EQUAL(register, number, skip) I(BPF_JMP | BPF_JEQ | BPF_K, register, 0, skip, number)
#define DIFFERENT(register, number, skip) I(BPF_JMP | BPF_JNE | BPF_K, register, 0, skip, number)
#define SKIP(count) I(BPF_JMP | BPF_JA, 0, 0, count, 0)
#define LEAVE I(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)
enum { R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, STACK };

#define AT(type, field) ((int16_t)offsetof(type, field))
#define KEY (-(int)sizeof(struct key)) // where it lies on the stack
#define ZERO (KEY - 8)                 // the index of the counts

// Copies a field of the context (R6) into one of the key.
#define INTO_KEY(type, field, member) LOAD(BPF_W, R1, R6, AT(type, field)), STORE(BPF_W, STACK, KEY + AT(struct key, member), R1)
#define INTO_KEY_SWAPPED(type, field, member) \
    LOAD(BPF_W, R1, R6, AT(type, field)), FROM_NETWORK(R1), STORE(BPF_W, STACK, KEY + AT(struct key, member), R1)
// R0: this processor's counts, or 0. Seven words.
#define FIND_COUNTS(map) \
    SET(R1, 0), STORE(BPF_W, STACK, ZERO, R1), MAP(R1, map), MOVE(R2, STACK), ADD(R2, ZERO), CALL(map_lookup_elem)

static int bpf(enum bpf_cmd command, union bpf_attr *a) { return (int)syscall(SYS_bpf, command, a, sizeof *a); }

static int map(enum bpf_map_type type, uint32_t key, uint32_t value, uint32_t entries) {
    union bpf_attr a = {.map_type = type, .key_size = key, .value_size = value, .max_entries = entries};
    int fd = bpf(BPF_MAP_CREATE, &a);
    if (fd < 0) err(1, "making a map of kind %d", type);
    return fd;
}

static int load(const char *name, enum bpf_prog_type type, enum bpf_attach_type where, const struct bpf_insn *text, size_t words) {
    static char log[1 << 16];
    union bpf_attr a = {.prog_type = type, .expected_attach_type = where, .insns = (uintptr_t)text, .insn_cnt = (uint32_t)words,
                        .license = (uintptr_t) "GPL", .log_buf = (uintptr_t)log, .log_size = sizeof log, .log_level = 1};
    int fd = bpf(BPF_PROG_LOAD, &a);
    if (fd < 0) {
        fputs(log, stderr);
        err(1, "loading the program %s", name);
    }
    return fd;
}

// Called at a connection's events: enters it when it is established, and when it closes counts what TCP itself has carried of it.
static int load_events(int sockets, int counts) {
    const struct bpf_insn text[] = {
        MOVE(R6, R1),
        LOAD(BPF_W, R7, R6, AT(struct bpf_sock_ops, op)),
        EQUAL(R7, BPF_SOCK_OPS_STATE_CB, 25),
        EQUAL(R7, BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB, 1),
        DIFFERENT(R7, BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB, 21),
        LOAD(BPF_W, R1, R6, AT(struct bpf_sock_ops, family)),
        DIFFERENT(R1, AF_INET, 19),
        INTO_KEY(struct bpf_sock_ops, local_ip4, local),
        INTO_KEY(struct bpf_sock_ops, remote_ip4, remote),
        INTO_KEY(struct bpf_sock_ops, local_port, local_port),
        INTO_KEY_SWAPPED(struct bpf_sock_ops, remote_port, remote_port),
        MOVE(R1, R6), MAP(R2, sockets), MOVE(R3, STACK), ADD(R3, KEY), SET(R4, BPF_ANY), CALL(sock_hash_update), // seven words
        MOVE(R1, R6), SET(R2, BPF_SOCK_OPS_STATE_CB_FLAG), CALL(sock_ops_cb_flags_set),
        SET(R0, 1), LEAVE,
        // An end of the connection changes its state.
        LOAD(BPF_W, R1, R6, AT(struct bpf_sock_ops, args[1])),
        DIFFERENT(R1, CLOSED, -4),
        FIND_COUNTS(counts),
        EQUAL(R0, 0, -12),
        LOAD(BPF_DW, R1, R6, AT(struct bpf_sock_ops, bytes_received)), ATOMIC_ADD(R0, AT(struct counts, tcp_received), R1),
        LOAD(BPF_DW, R1, R6, AT(struct bpf_sock_ops, bytes_acked)), ATOMIC_ADD(R0, AT(struct counts, tcp_acked), R1),
        SET(R0, 1), LEAVE,
    };
    return load("of events", BPF_PROG_TYPE_SOCK_OPS, BPF_CGROUP_SOCK_OPS, text, sizeof text / sizeof *text);
}

// Called for what a socket in the hash is about to send: the other end's key is its own, turned round.
static int load_messages(int sockets, int counts) {
    const struct bpf_insn text[] = {
        MOVE(R6, R1),
        LOAD(BPF_W, R8, R6, AT(struct sk_msg_md, size)),
        INTO_KEY(struct sk_msg_md, remote_ip4, local),
        INTO_KEY(struct sk_msg_md, local_ip4, remote),
        INTO_KEY_SWAPPED(struct sk_msg_md, remote_port, local_port),
        INTO_KEY(struct sk_msg_md, local_port, remote_port),
        MOVE(R1, R6), MAP(R2, sockets), MOVE(R3, STACK), ADD(R3, KEY), SET(R4, BPF_F_INGRESS), CALL(msg_redirect_hash),
        MOVE(R7, R0),
        FIND_COUNTS(counts),
        EQUAL(R0, 0, 4),
        DIFFERENT(R7, SK_PASS, 2), // the other end is not there
        ATOMIC_ADD(R0, AT(struct counts, redirected), R8), SKIP(1),
        ATOMIC_ADD(R0, AT(struct counts, passed), R8),
        SET(R0, SK_PASS), LEAVE,
    };
    return load("of messages", BPF_PROG_TYPE_SK_MSG, BPF_SK_MSG_VERDICT, text, sizeof text / sizeof *text);
}

static char cgroup[4096];
static int counts_map;

// Where cgroup v2 is, beside version 1 or alone.
static void find_cgroups(char *path, size_t room) {
    FILE *mounts = setmntent("/proc/self/mounts", "r");
    for (struct mntent *m; mounts && (m = getmntent(mounts));)
        if (!strcmp(m->mnt_type, "cgroup2")) {
            snprintf(path, room, "%s", m->mnt_dir);
            endmntent(mounts);
            return;
        }
    errno = ENOENT;
    err(1, "no cgroup v2 is mounted");
}

static void write_file(const char *folder, const char *name, const char *text) {
    char path[sizeof cgroup + 32];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) err(1, "%s", path);
    close(fd);
}

#define NAME "gnlbench-sockmap-"

// Not one that has ended and that nobody has waited for yet.
static int lives(pid_t pid) {
    char path[64], state = 'Z';
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *stat = fopen(path, "r");
    if (!stat) return 0;
    // The name in brackets may hold anything, but ours does not.
    if (fscanf(stat, "%*d (%*[^)]) %c", &state) != 1) state = 'Z';
    fclose(stat);
    return state != 'Z' && state != 'X';
}

// What one that was killed outright has left: its number is in the name. The kernel removes no cgroup in which a process still
// lives. Returns how many there are still.
static int remove_stale(const char *root) {
    DIR *folder = opendir(root);
    int left = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        pid_t owner = strncmp(entry->d_name, NAME, sizeof NAME - 1) ? 0 : atoi(entry->d_name + sizeof NAME - 1);
        if (owner <= 0) continue;
        if (lives(owner) || unlinkat(dirfd(folder), entry->d_name, AT_REMOVEDIR) < 0) left++;
    }
    if (folder) closedir(folder);
    return left;
}

static void make(void) {
    char root[2048];
    find_cgroups(root, sizeof root);
    remove_stale(root);
    snprintf(cgroup, sizeof cgroup, "%s/" NAME "%d", root, getpid());
    int sockets = map(BPF_MAP_TYPE_SOCKHASH, sizeof(struct key), sizeof(uint32_t), CONNECTIONS);
    counts_map = map(BPF_MAP_TYPE_PERCPU_ARRAY, sizeof(uint32_t), sizeof(struct counts), 1);
    int events = load_events(sockets, counts_map), messages = load_messages(sockets, counts_map);
    union bpf_attr on_map = {
        .target_fd = (uint32_t)sockets, .attach_bpf_fd = (uint32_t)messages, .attach_type = BPF_SK_MSG_VERDICT};
    if (bpf(BPF_PROG_ATTACH, &on_map) < 0) err(1, "attaching the program of messages");
    if (mkdir(cgroup, 0755) < 0) err(1, "%s", cgroup);
    int folder = open(cgroup, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // A link, so that the kernel detaches it with this process, however that ends.
    union bpf_attr on_cgroup = {.link_create = {
        .prog_fd = (uint32_t)events, .target_fd = (uint32_t)folder, .attach_type = BPF_CGROUP_SOCK_OPS}};
    if (bpf(BPF_LINK_CREATE, &on_cgroup) < 0) {
        int why = errno;
        rmdir(cgroup);
        errno = why;
        err(1, "attaching the program of events");
    }
}

// Whoever is left in the cgroup ends with it. Everything else goes with this process.
static void unmake(void) {
    write_file(cgroup, "cgroup.kill", "1");
    for (int i = 0; rmdir(cgroup) < 0 && errno == EBUSY && i < 200; i++) usleep(10000);
    static struct counts each[MOST_CPUS];
    struct counts all = {0};
    uint32_t index = 0;
    union bpf_attr a = {.map_fd = (uint32_t)counts_map, .key = (uintptr_t)&index, .value = (uintptr_t)each};
    if (bpf(BPF_MAP_LOOKUP_ELEM, &a) < 0) err(1, "reading the counts");
    for (int i = 0; i < MOST_CPUS; i++) {
        all.redirected += each[i].redirected;
        all.passed += each[i].passed;
        all.tcp_received += each[i].tcp_received;
        all.tcp_acked += each[i].tcp_acked;
    }
    printf("result redirected=%llu passed=%llu tcp_received=%llu tcp_acked=%llu\nend\n", (unsigned long long)all.redirected,
           (unsigned long long)all.passed, (unsigned long long)all.tcp_received, (unsigned long long)all.tcp_acked);
    fflush(stdout);
}

__attribute__((noreturn)) static void become(const char *in, char **command) {
    write_file(in, "cgroup.procs", "0");
    execvp(*command, command);
    err(127, "%s", *command);
}

static volatile sig_atomic_t interrupted;
static void interrupt(int signal) { interrupted = signal; }

int main(int argc, char **argv) {
    const char *mode = argc < 2 ? "" : argv[1];
    if (argc >= 4 && !strcmp(mode, "in")) become(argv[2], argv + 3);
    if (argc == 2 && !strcmp(mode, "clear")) {
        char root[2048];
        find_cgroups(root, sizeof root);
        // Those who have just been killed are there for a moment yet.
        for (int i = 0; remove_stale(root) && i < 20; i++) usleep(50000);
        return 0;
    }
    int runs = argc >= 3 && !strcmp(mode, "run");
    if (!runs && !(argc == 2 && !strcmp(mode, "hold")))
        errx(2, "usage: sockmap run COMMAND … | hold | in CGROUP COMMAND … | clear");
    prctl(PR_SET_PDEATHSIG, SIGTERM); // whoever measures is gone: everything is to be taken back
    // The signals come only while it waits for them, so that none is missed just before.
    sigset_t held, before;
    sigemptyset(&held);
    sigaddset(&held, SIGTERM), sigaddset(&held, SIGINT), sigaddset(&held, SIGHUP), sigaddset(&held, SIGCHLD);
    sigprocmask(SIG_BLOCK, &held, &before);
    struct sigaction act = {.sa_handler = interrupt};
    for (int i = 1; i < NSIG; i++)
        if (sigismember(&held, i) == 1) sigaction(i, &act, 0);
    make();
    if (!runs) {
        printf("cgroup %s\n", cgroup);
        fflush(stdout);
        while (!interrupted) sigsuspend(&before);
        unmake();
        return 0;
    }
    pid_t child = fork();
    if (child < 0) warn("fork");
    if (child == 0) {
        sigprocmask(SIG_SETMASK, &before, 0);
        for (int i = 1; i < NSIG; i++)
            if (sigismember(&held, i) == 1) signal(i, SIG_DFL);
        become(cgroup, argv + 2);
    }
    int status = 1 << 8;
    while (child > 0 && waitpid(child, &status, WNOHANG) == 0) {
        sigsuspend(&before);
        if (interrupted && interrupted != SIGCHLD) kill(child, SIGTERM);
    }
    unmake();
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
