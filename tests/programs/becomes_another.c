// A process becomes another user, or somebody with less, in every way that there is, with bytes under way in both directions: no byte is lost, the connection goes on, also where its parent
// has it too and stays who it is, and nothing of what the first user had is mapped or open afterwards.
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <setjmp.h>
#include <sys/syscall.h>
#include "check.h"

enum { NOBODY = 65534, EARLY = 3000, EXCHANGES = 30, SIZE = 400, LARGE = 200000 };

static int by_setuid(void) { return setgroups(0, NULL) || setgid(NOBODY) || setuid(NOBODY); }
static int by_seteuid(void) { return seteuid(NOBODY); }
static int by_setreuid(void) { return setreuid(NOBODY, NOBODY); }
static int by_setresuid(void) { return setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY); }
static int by_number(void) { return (int)(syscall(SYS_setresgid, NOBODY, NOBODY, NOBODY) || syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY)); }
static int by_chroot(void) { return chroot("/var") || chdir("/"); }
static int to_and_fro(void) { return seteuid(NOBODY) || seteuid(0) || seteuid(NOBODY); }

static int keeps_user(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {0};
    // Nothing of the numbers changes here; nor does who it is by what follows.
    if (setuid(0) || setgid(0) || setresuid(-1, -1, -1)) return -1;
    return setgroups(0, NULL) || setgid(NOBODY) || (int)syscall(SYS_capset, &header, none);
}

static const struct {
    const char *name;
    int (*change)(void);
    bool leaves;
} changes[] = {
    {"setuid", by_setuid, true},     {"seteuid", by_seteuid, true}, {"setreuid", by_setreuid, true}, {"setresuid", by_setresuid, true},
    {"by number", by_number, true},  {"chroot", by_chroot, true},   {"to and fro", to_and_fro, true}, {"less, and the same user", keeps_user, false},
};
enum { CHANGES = sizeof changes / sizeof *changes };

static int maps = -1, fds = -1;

// Nothing of the first user's is mapped, and none of it is open.
static void has_nothing(void) {
    static char text[1 << 20];
    const char *place = getenv("GINNEL_DIR");
    if (!place || !*place) return;
    size_t got = 0;
    for (ssize_t n; (n = pread(maps, text + got, sizeof text - 1 - got, (off_t)got)) > 0;) got += (size_t)n;
    CHECK(got > 0 && !strstr(text, place) && !strstr(text, "sockets-"));
    DIR *all = fdopendir(dup(fds));
    CHECK(all);
    rewinddir(all);
    for (struct dirent *one; (one = readdir(all));) {
        char link[PATH_MAX];
        ssize_t n = readlinkat(fds, one->d_name, link, sizeof link - 1);
        link[n < 0 ? 0 : n] = 0;
        bool is_kept = strstr(link, "/sockets-") || strstr(link, "/default");
        if (is_kept) fprintf(stderr, "descriptor %s is %s\n", one->d_name, link);
        CHECK(!is_kept);
    }
    closedir(all);
}

// Before the root directory changes. In a child of fork anew: what its parent opened shows the parent.
static void open_own(void) {
    maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC), fds = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(maps >= 0 && fds >= 0);
}

static void become(int how) {
    open_own();
    IS(changes[how].change(), 0);
    if (changes[how].leaves) has_nothing();
    close(maps), close(fds);
}

static void exchange(int fd, bool first) {
    for (int i = 0; i < EXCHANGES; i++) {
        if (first) put_pattern(fd, SIZE, i), get_pattern(fd, SIZE, i + 7);
        else get_pattern(fd, SIZE, i), put_pattern(fd, SIZE, i + 7);
    }
}

static void peer(int fd) {
    put_pattern(fd, EARLY, 1);
    tell(), hear();
    get_pattern(fd, EARLY, 2);
    exchange(fd, false);
    exchange(fd, true);
    get_pattern(fd, LARGE, 3);
    put_pattern(fd, LARGE, 4);
}

static void talk(int fd) {
    get_pattern(fd, EARLY, 1);
    exchange(fd, true);
}

static void talk_on(int fd) {
    exchange(fd, false);
    put_pattern(fd, LARGE, 3);
    get_pattern(fd, LARGE, 4);
}

static int begin(void) {
    int fd = with_peer(peer);
    hear();
    put_pattern(fd, EARLY, 2);
    return fd;
}

static void alone(int how) {
    int fd = begin();
    become(how);
    tell();
    talk(fd), talk_on(fd);
    peer_ends();
}

static void beside_its_parent(int how) {
    int fd = begin();
    pid_t child = fork();
    if (child == 0) {
        become(how);
        tell();
        talk(fd);
        _exit(0);
    }
    IS(ended(child), 0);
    talk_on(fd);
    peer_ends();
}

static void *receives(void *at) {
    get_pattern(*(int *)at, EARLY, 1);
    talk_on(*(int *)at);
    return NULL;
}

static void *waits(void *at) {
    int set = epoll_create1(EPOLL_CLOEXEC);
    IS(epoll_add(set, *(int *)at, EPOLLIN), 0);
    CHECK(epolled(set, *(int *)at, PATIENCE) & EPOLLIN);
    close(set);
    return receives(at);
}

static void late_peer(int fd) {
    hear();
    put_pattern(fd, EARLY, 1);
    exchange(fd, true);
    get_pattern(fd, LARGE, 3);
    put_pattern(fd, LARGE, 4);
}

// While another thread sleeps with the connection.
static void beside(void *(*sleeps)(void *)) {
    int fd = with_peer(late_peer);
    pthread_t thread;
    IS(pthread_create(&thread, NULL, sleeps, &fd), 0);
    sleep_ms(30);
    become(0);
    tell();
    joined(thread);
    peer_ends();
}

// A process that continues another, whose number it is told here, a second later.
static int continues(void) {
    int ends[2];
    pid_t stopped;
    IS(pipe(ends), 0);
    if (fork() == 0) {
        close(ends[1]);
        if (read(ends[0], &stopped, sizeof stopped) == sizeof stopped) sleep_ms(1000), kill(stopped, SIGCONT);
        _exit(0);
    }
    close(ends[0]);
    return ends[1];
}

static void stopped_peer(int fd) {
    get_pattern(fd, SIZE, 5);
    exchange(fd, true);
}

// Its other end does not answer for a second, and has bytes to read: leaving takes as long.
static int beside_a_stopped_peer(void) {
    int later = continues(), fd = with_peer(stopped_peer);
    IS(kill(other, SIGSTOP), 0);
    IS(waitpid(other, NULL, WUNTRACED), other);
    put_pattern(fd, SIZE, 5);
    CHECK(write(later, &other, sizeof other) == sizeof other);
    close(later);
    open_own();
    return fd;
}

static sigjmp_buf back;
static void late(int signal) { (void)signal, siglongjmp(back, 1); }

static void *sets_its_group(void *unused) {
    IS(setgid(NOBODY), 0);
    return unused;
}

// A handler leaves the call in which the process leaves its segment. That, or the next, has left it all the same, and no other thread waits for it.
static void left_by_a_jump(int how) {
    int fd = beside_a_stopped_peer();
    struct sigaction action = {.sa_handler = late};
    IS(sigaction(SIGALRM, &action, NULL), 0);
    if (sigsetjmp(back, 1) == 0) {
        IS(setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {0, 300000}}, NULL), 0);
        IS(changes[how].change(), 0);
    }
    IS(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL), 0);
    IS(changes[how].change(), 0);
    has_nothing();
    pthread_t thread;
    IS(pthread_create(&thread, NULL, sets_its_group, NULL), 0);
    joined(thread);
    exchange(fd, false);
    peer_ends();
}

static void *forks(void *unused) {
    while (geteuid() == 0) sleep_ms(1);
    sleep_ms(200);
    pid_t child = fork();
    if (child == 0) {
        open_own(), has_nothing();
        _exit(0);
    }
    IS(ended(child), 0);
    return unused;
}

// Another thread forks while the process leaves its segment: neither has anything of it afterwards.
static void beside_a_fork(int how) {
    int fd = beside_a_stopped_peer();
    pthread_t thread;
    IS(pthread_create(&thread, NULL, forks, NULL), 0);
    IS(changes[how].change(), 0);
    has_nothing();
    joined(thread);
    exchange(fd, false);
    peer_ends();
}

static void in_a_child(void (*work)(int), int how) {
    pid_t child = fork();
    if (child == 0) {
        work(how);
        exit(0);
    }
    IS(ended(child), 0);
}

static void beside_a_receive(int how) { (void)how, beside(receives); }
static void beside_a_wait(int how) { (void)how, beside(waits); }

int main(void) {
    // Without root nobody becomes anybody.
    for (int how = 0; geteuid() == 0 && how < CHANGES; how++) in_a_child(alone, how), in_a_child(beside_its_parent, how);
    if (geteuid() == 0) in_a_child(beside_a_receive, 0), in_a_child(beside_a_wait, 0);
    if (geteuid() == 0) in_a_child(left_by_a_jump, 3), in_a_child(beside_a_fork, 3);
    int fd = with_peer(late_peer);
    tell();
    receives(&fd);
    peer_ends();
    say("all bytes arrived, and nothing was kept");
}
