// A process of one thread gives up rights that the kernel keeps for each thread by itself, while a connection of it is carried. Whatever other thread it has, of a library that it does not know
// of, has none of them either; and the connection goes on.
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include "check.h"

enum { NOBODY = 65534, EXCHANGES = 20, SIZE = 400, CAPABILITIES = 41 };

static int for_good(void) { return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); }
static int for_good_by_number(void) { return (int)syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); }
static int bits(void) { return prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED, 0, 0, 0); }
static int groups(void) { return (int)syscall(SYS_setgroups, 1, &(gid_t){NOBODY}); }
static int group(void) { return (int)syscall(SYS_setresgid, NOBODY, NOBODY, NOBODY); }
static int user(void) { return group() || (int)syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY); }

static int bounds(void) {
    int failed = 0;
    for (int i = 0; i < CAPABILITIES; i++) failed |= prctl(PR_CAPBSET_READ, i, 0, 0, 0) == 1 && prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
    return failed;
}

static int set(long (*how)(void *, void *)) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {0};
    return (int)how(&header, none);
}
int capset(void *header, void *data);
static long by_name(void *header, void *data) { return capset(header, data); }
static long by_number(void *header, void *data) { return syscall(SYS_capset, header, data); }
static int all(void) { return set(by_name); }
static int all_by_number(void) { return set(by_number); }

static int (*const drops[])(void) = {for_good, for_good_by_number, bits, groups, group, user, bounds, all, all_by_number};
enum { DROPS = sizeof drops / sizeof *drops, FOR_ANYBODY = 2 };

// What a thread may, as the kernel says it.
static void rights(const char *thread, char *to, size_t size) {
    char path[PATH_MAX], line[512];
    snprintf(path, sizeof path, "/proc/self/task/%s/status", thread);
    FILE *status = fopen(path, "r");
    // It may have ended meanwhile.
    for (*to = 0; status && fgets(line, sizeof line, status);) {
        static const char *const kept[] = {"Uid:", "Gid:", "Groups:", "CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:", "NoNewPrivs:"};
        for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
            if (!strncmp(line, kept[i], strlen(kept[i]))) strncat(to, line, size - strlen(to) - 1);
    }
    if (status) fclose(status);
}

static void all_have_the_same(void) {
    char name[16], own[4096], others[4096];
    snprintf(name, sizeof name, "%d", getpid());
    rights(name, own, sizeof own);
    DIR *threads = opendir("/proc/self/task");
    CHECK(threads && *own);
    for (struct dirent *one; (one = readdir(threads));) {
        if (one->d_name[0] == '.') continue;
        rights(one->d_name, others, sizeof others);
        if (*others && strcmp(own, others)) fprintf(stderr, "the process:\n%sthread %s:\n%s", own, one->d_name, others);
        CHECK(!*others || !strcmp(own, others));
    }
    closedir(threads);
}

static void peer(int fd) {
    for (int i = 0; i < EXCHANGES; i++) put_pattern(fd, SIZE, i), get_pattern(fd, SIZE, i + 7);
}

static void exchange(int fd) {
    for (int i = 0; i < EXCHANGES; i++) get_pattern(fd, SIZE, i), put_pattern(fd, SIZE, i + 7);
}

int main(void) {
    for (int i = 0; i < (geteuid() == 0 ? DROPS : FOR_ANYBODY); i++) {
        pid_t child = fork();
        if (child == 0) {
            int fd = with_peer(peer);
            IS(drops[i](), 0);
            all_have_the_same();
            exchange(fd);
            all_have_the_same();
            peer_ends();
            exit(0);
        }
        IS(ended(child), 0);
    }
    say("no thread has kept what the process gave up");
}
