/* Makes the calls that the shim stands before, in their less usual forms too, and prints what each answered. What it prints must be
 * the same with and without the shim: tests/calls.rs compares them. Nothing here depends on time, numbers of processes or addresses. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Public names without a declaration. */
extern ssize_t __read(int, void *, size_t);
extern ssize_t __write(int, const void *, size_t);
extern ssize_t __send(int, const void *, size_t, int);
extern int __close(int);
extern int __dup2(int, int);
extern int __fcntl(int, int, ...);
extern int __pipe(int *);
extern int __connect(int, const struct sockaddr *, socklen_t);
extern int __poll(struct pollfd *, nfds_t, int);
extern int __select(int, fd_set *, fd_set *, fd_set *, struct timeval *);
extern int __open(const char *, int, ...);
extern int __open64(const char *, int, ...);
extern pid_t __vfork(void) __attribute__((returns_twice));
extern FILE *_IO_fdopen(int, const char *);
extern int _IO_fclose(FILE *);

/* The compiler cannot see what it is, so fortified calls keep their check. */
static size_t hidden(size_t n) {
    volatile size_t value = n;
    return value;
}

static void say(const char *what, long result) {
    int error = errno;
    if (result == -1)
        printf("%s: -1 %s\n", what, strerrorname_np(error));
    else
        printf("%s: %ld\n", what, result);
    fflush(stdout);
    errno = 0;
}

#define TRY(call) (errno = 0, say(#call, (long)(call)))

/* Two connected TCP sockets. */
static void tcp_pair(int pair[2]) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    if (bind(listener, (void *)&address, len) || listen(listener, 1) || getsockname(listener, (void *)&address, &len))
        abort();
    pair[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (__connect(pair[0], (void *)&address, len))
        abort();
    pair[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    int one = 1;
    setsockopt(pair[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(pair[1], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    close(listener);
}

static void wait_for_bytes(int fd, int n) {
    int waiting = 0;
    while (ioctl(fd, FIONREAD, &waiting) == 0 && waiting < n)
        usleep(1000);
}

static void bytes(void) {
    int s[2];
    char buf[64];
    struct iovec iov[2] = {{buf, 2}, {buf + 2, 3}};
    tcp_pair(s);
    TRY(write(s[0], "hello", 5));
    TRY(read(s[1], buf, hidden(5)));
    TRY(__write(s[0], "hello", 5));
    TRY(__read(s[1], buf, 5));
    TRY(__send(s[0], "hello", 5, MSG_MORE));
    TRY(send(s[0], "hello", 5, 0));
    wait_for_bytes(s[1], 10);
    TRY(recv(s[1], buf, hidden(2), MSG_PEEK));
    TRY(recv(s[1], buf, hidden(10), MSG_WAITALL));
    TRY(recv(s[1], buf, hidden(10), MSG_DONTWAIT));
    TRY(writev(s[0], iov, 2));
    wait_for_bytes(s[1], 5);
    TRY(readv(s[1], iov, 2));
    TRY(writev(s[0], iov, -1));
    TRY(writev(s[0], iov, 1025));
    TRY(writev(s[0], NULL, 1));
    TRY(writev(s[0], iov, 0));
    TRY(readv(s[1], iov, 1025));
    TRY(pwritev2(s[0], iov, 2, -1, 0));
    wait_for_bytes(s[1], 5);
    TRY(preadv2(s[1], iov, 2, -1, RWF_NOWAIT));
    TRY(preadv2(s[1], iov, 2, -1, RWF_NOWAIT));
    TRY(preadv2(s[1], iov, 2, 0, 0));
    TRY(preadv2(s[1], iov, 2, -1, 1 << 20));
    TRY(pread(s[1], buf, hidden(5), 0));
    TRY(write(s[0], NULL, 5));
    TRY(write(s[0], buf, 0));
    TRY(read(s[1], NULL, 0));
    TRY(read(-1, buf, hidden(1)));
    TRY(write(-1, buf, 1));
    TRY(__read(s[1], buf, (size_t)-1));

    struct sockaddr_in from;
    socklen_t len = sizeof from;
    TRY(sendto(s[0], "abc", 3, 0, NULL, 0));
    TRY(recvfrom(s[1], buf, hidden(3), 0, (void *)&from, &len));
    printf("address length %u\n", len);
    TRY(send(s[0], "abc", 3, 0));
    TRY(recvfrom(s[1], buf, hidden(3), 0, (void *)&from, NULL));
    TRY(sendto(s[0], "abc", 3, 0, (void *)&from, sizeof from));
    len = sizeof from;
    TRY(recvfrom(s[1], buf, hidden(3), 0, NULL, &len));
    printf("address length %u\n", len);

    int file = open("/proc/self/exe", O_RDONLY);
    off_t offset = 1;
    TRY(sendfile(s[0], file, &offset, 3));
    printf("offset %ld\n", (long)offset);
    TRY(sendfile64(s[0], file, NULL, 4));
    wait_for_bytes(s[1], 7);
    TRY(recv(s[1], buf, hidden(64), 0));
    printf("%.3s|%d\n", buf, buf[3] == 0x7f);
    close(file);
    int p[2];
    TRY(__pipe(p));
    TRY(write(p[1], "piped", 5));
    TRY(splice(p[0], NULL, s[0], NULL, 5, 0));
    TRY(recv(s[1], buf, 5, MSG_WAITALL));
    close(p[0]);
    TRY(shutdown(s[0], SHUT_WR));
    TRY(shutdown(s[0], 9));
    TRY(read(s[1], buf, 5));
    signal(SIGPIPE, SIG_IGN);
    TRY(send(s[0], "x", 1, 0));
    TRY(send(s[0], "x", 0, 0));
    TRY(write(p[1], "x", 1));
    close(p[1]);
    TRY(close(s[0]));
    TRY(__close(s[1]));
    TRY(close(s[1]));
}

static void messages(void) {
    int s[2], u[2];
    char a[8], b[8], control[64] __attribute__((aligned(8)));
    tcp_pair(s);
    socketpair(AF_UNIX, SOCK_STREAM, 0, u);
    struct iovec iov[2] = {{"ab", 2}, {"cd", 2}}, in[2] = {{a, 2}, {b, 2}};
    struct sockaddr_in from;
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
    TRY(sendmsg(s[0], &m, 0));
    m = (struct msghdr){.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = in, .msg_iovlen = 2,
                        .msg_control = control, .msg_controllen = sizeof control, .msg_flags = 77};
    wait_for_bytes(s[1], 4);
    TRY(recvmsg(s[1], &m, MSG_CMSG_CLOEXEC));
    printf("%u %zu %x\n", m.msg_namelen, m.msg_controllen, m.msg_flags);
    m.msg_iovlen = 1025;
    TRY(recvmsg(s[1], &m, MSG_DONTWAIT));
    m.msg_iovlen = 2;
    TRY(recvmsg(s[1], &m, MSG_DONTWAIT));
    TRY(recvmsg(s[1], &m, MSG_ERRQUEUE));
    TRY(recvmsg(s[1], NULL, 0));
    TRY(sendmsg(s[1], NULL, 0));

    /* Descriptors. */
    m = (struct msghdr){.msg_iov = iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(2 * sizeof(int))};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(2 * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(c), s, sizeof s);
    TRY(sendmsg(u[0], &m, 0));
    m = (struct msghdr){.msg_iov = in, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    TRY(recvmsg(u[1], &m, 0));
    int got[2];
    memcpy(got, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof got);
    TRY(write(got[0], "via", 3));
    TRY(recv(s[1], a, hidden(8), 0));
    close(got[0]);
    close(got[1]);

    /* Several at once: an empty one between, then one that cannot be sent. */
    struct iovec none = {NULL, 0}, wrong = {NULL, 4};
    struct mmsghdr many[5] = {{{.msg_iov = iov, .msg_iovlen = 2}, 9},
                              {{.msg_iov = &none, .msg_iovlen = 1}, 9},
                              {{.msg_iov = iov, .msg_iovlen = 1}, 9},
                              {{.msg_iov = &wrong, .msg_iovlen = 1}, 9},
                              {{.msg_iov = iov, .msg_iovlen = 1}, 9}};
    TRY(sendmmsg(s[0], many, 5, 0));
    for (int i = 0; i < 5; i++)
        printf("%u ", many[i].msg_len);
    TRY(sendmmsg(s[0], many + 3, 1, 0));
    TRY(sendmmsg(s[0], NULL, 1, 0));
    wait_for_bytes(s[1], 6);
    struct mmsghdr into[4] = {{{.msg_iov = in, .msg_iovlen = 1}, 9},
                              {{.msg_iov = in, .msg_iovlen = 2}, 9},
                              {{.msg_iov = in, .msg_iovlen = 2}, 9},
                              {{.msg_iov = in, .msg_iovlen = 2}, 9}};
    struct timespec limit = {60, 0}, invalid = {0, -1}, zero = {0, 0};
    TRY(recvmmsg(s[1], into, 4, MSG_WAITFORONE, &limit));
    printf("%u %u %u, time left: %d\n", into[0].msg_len, into[1].msg_len, into[2].msg_len, limit.tv_sec == 59);
    TRY(recvmmsg(s[1], into, 4, MSG_DONTWAIT, NULL));
    TRY(recvmmsg(s[1], into, 4, 0, &invalid));
    TRY(send(s[0], "abcd", 4, 0));
    TRY(recvmmsg(s[1], into, 4, 0, &zero));
    TRY(recv(s[1], a, hidden(8), MSG_DONTWAIT));
    close(s[0]), close(s[1]), close(u[0]), close(u[1]);
}

static void on_signal(int number) {
    (void)number;
}

static void readiness(void) {
    int s[2];
    tcp_pair(s);
    struct pollfd fds[2] = {{.fd = s[0], .events = POLLIN}, {.fd = s[1], .events = POLLIN | POLLOUT}};
    struct timespec instant = {0, 1000000}, invalid = {0, 1000000000};
    sigset_t mask;
    sigemptyset(&mask);
    TRY(poll(fds, hidden(2), 0));
    printf("%x %x\n", fds[0].revents, fds[1].revents);
    TRY(poll(fds, hidden(1), 1));
    TRY(__poll(fds, 1, 1));
    TRY(poll(NULL, 0, 1));
    TRY(poll(NULL, 1, 1));
    TRY(ppoll(fds, hidden(1), &instant, &mask));
    TRY(ppoll(fds, hidden(1), &invalid, &mask));
    send(s[1], "x", 1, 0);
    TRY(poll(fds, hidden(1), -1));

    fd_set in, out;
    FD_ZERO(&in); FD_SET(s[0], &in); FD_ZERO(&out); FD_SET(s[1], &out);
    struct timeval left = {50, 0}, over = {0, 1000}, wide = {0, 2500000}, negative = {-1, 0};
    TRY(select(s[1] + 1, &in, &out, NULL, &left));
    printf("%d %d, time left: %d\n", !!FD_ISSET(s[0], &in), !!FD_ISSET(s[1], &out), left.tv_sec == 49);
    FD_ZERO(&in); FD_SET(s[1], &in);
    TRY(__select(s[1] + 1, &in, NULL, NULL, &over));
    printf("%ld %ld %d\n", (long)over.tv_sec, (long)over.tv_usec, !!FD_ISSET(s[1], &in));
    FD_SET(s[0], &in);
    TRY(select(s[1] + 1, &in, NULL, NULL, &wide));
    printf("%d\n", wide.tv_sec == 2 && wide.tv_usec < 500000 && wide.tv_usec > 100000);
    TRY(select(s[1] + 1, &in, NULL, NULL, &negative));
    TRY(select(-1, &in, NULL, NULL, &left));
    TRY(pselect(s[1] + 1, NULL, &out, NULL, &instant, &mask));
    TRY(pselect(s[1] + 1, NULL, &out, NULL, &invalid, &mask));

    int ep = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 7}, events[4];
    TRY(epoll_create(0));
    TRY(epoll_ctl(ep, EPOLL_CTL_ADD, s[0], &event));
    TRY(epoll_ctl(ep, EPOLL_CTL_ADD, s[0], &event));
    TRY(epoll_ctl(ep, EPOLL_CTL_MOD, s[1], &event));
    TRY(epoll_ctl(ep, EPOLL_CTL_ADD, s[1], NULL));
    TRY(epoll_wait(ep, events, 4, -1));
    printf("%x %u\n", events[0].events, events[0].data.u32);
    TRY(epoll_pwait(ep, events, 4, 0, &mask));
    TRY(epoll_pwait2(ep, events, 4, &instant, &mask));
    TRY(epoll_pwait2(ep, events, 4, &invalid, &mask));
    TRY(epoll_wait(ep, events, 0, 0));
    TRY(epoll_wait(ep, NULL, 4, 0));
    TRY(epoll_wait(s[0], events, 4, 0));
    TRY(epoll_ctl(ep, EPOLL_CTL_DEL, s[0], NULL));
    TRY(epoll_wait(ep, events, 4, 1));

    /* Interrupted: EINTR each time, and select still tells the time. */
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGALRM, &action, NULL);
    left = (struct timeval){50, 0};
    FD_ZERO(&in); FD_SET(s[1], &in);
    ualarm(20000, 0);
    TRY(select(s[1] + 1, &in, NULL, NULL, &left));
    printf("time left: %d\n", left.tv_sec == 49);
    char buf[4];
    ualarm(20000, 0);
    TRY(read(s[1], buf, 4));
    ualarm(20000, 0);
    TRY(poll(&fds[1], hidden(0), -1));
    ualarm(20000, 0);
    TRY(epoll_wait(ep, events, 4, -1));
    close(ep), close(s[0]), close(s[1]);
}

static void descriptors(void) {
    int s[2], value = 0;
    tcp_pair(s);
    TRY(dup2(s[0], 40));
    TRY(dup2(-1, 40));
    TRY(dup2(40, 40));
    TRY(dup2(39, 39));
    TRY(dup2(s[0], 1 << 30));
    TRY(dup3(s[0], 40, O_CLOEXEC));
    TRY(dup3(40, 40, 0));
    TRY(dup3(s[0], 40, O_APPEND));
    TRY(__dup2(s[1], 41));
    TRY(fcntl(40, F_GETFD));
    TRY(fcntl(s[0], F_DUPFD, 50));
    TRY(fcntl64(s[0], F_DUPFD_CLOEXEC, 50));
    TRY(__fcntl(s[0], F_GETFL));
    TRY(fcntl(s[0], F_SETFL, O_RDWR | O_NONBLOCK));
    TRY(fcntl(50, F_GETFL));
    TRY(fcntl(s[0], F_SETOWN, getpid()));
    TRY(fcntl(s[0], F_DUPFD, -1));
    TRY(ioctl(s[0], FIONBIO, &value));
    TRY(fcntl(50, F_GETFL));
    TRY(ioctl(s[0], FIONBIO, NULL));
    TRY(send(40, "four", 4, 0));
    wait_for_bytes(s[1], 4);
    TRY(ioctl(41, FIONREAD, &value));
    printf("%d\n", value);
    TRY(ioctl(41, FIONREAD, NULL));
    TRY(ioctl(s[0], TIOCOUTQ, &value));
    printf("%d\n", value);
    TRY(ioctl(s[0], 0xdead, NULL));
    TRY(close_range(50, 51, CLOSE_RANGE_CLOEXEC));
    TRY(fcntl(50, F_GETFD));
    TRY(close_range(51, 50, 0));
    TRY(close_range(50, 51, 0));
    TRY(close_range(50, 51, 1 << 20));
    TRY(fcntl(50, F_GETFD));
    closefrom(40);
    TRY(fcntl(40, F_GETFD));
    TRY(__open("/dev/null", O_RDONLY | O_CLOEXEC));
    TRY(__open64("/nowhere", O_RDONLY));
    int mode = 0600;
    char path[] = "/tmp/ginnel-calls-XXXXXX";
    close(mkstemp(path));
    unlink(path);
    TRY(open(path, O_CREAT | O_EXCL | O_WRONLY | hidden(0), mode) >= 0);
    TRY(openat(AT_FDCWD, path, O_RDONLY | hidden(0)) >= 0);
    TRY(creat(path, mode) >= 0);
    TRY(access(path, R_OK | W_OK));
    unlink(path);
    closefrom(3);
    tcp_pair(s);
    struct tcp_info info;
    socklen_t len = sizeof info;
    TRY(getsockopt(s[0], IPPROTO_TCP, TCP_INFO, &info, &len));
    TRY(getsockopt(s[0], SOL_SOCKET, SO_ERROR, NULL, NULL));
    TRY(setsockopt(s[0], SOL_SOCKET, SO_KEEPALIVE, NULL, 4));
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    TRY(connect(s[0], &none, sizeof none));
    TRY(send(s[0], "x", 1, MSG_NOSIGNAL));
    TRY(connect(s[1], NULL, 0));
    TRY(connect(-1, &none, sizeof none));
    TRY(accept(s[0], NULL, NULL));
    closefrom(3);
}

static int child_status(pid_t child) {
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int cloned(void *argument) {
    /* A fork: the parent must not see this. */
    *(int *)argument = 5;
    return 11;
}

static void *vfork_in_thread(void *argument) {
    volatile int shared = 1;
    pid_t child = vfork();
    if (child == 0) {
        shared = 2;
        pid_t grandchild = __vfork();
        if (grandchild == 0) {
            shared += 40;
            execl("/nowhere", "nowhere", NULL);
            _exit(errno == ENOENT ? 3 : 4);
        }
        _exit(child_status(grandchild) + 10);
    }
    printf("in a thread: %d %d\n", child_status(child), shared);
    return argument;
}

static void processes(void) {
    int p[2], value = 0;
    fflush(stdout);
    /* More arguments than there are registers. */
    for (int form = 0; form < 10; form++) {
        pid_t child = form < 4 ? vfork() : fork();
        if (child == 0) {
            char *argv[] = {"sh", "-c", "echo \"$0 $# $7 $V\"", "a", "b", "c", "d", "e", "f", "g", "h", NULL};
            char *envp[] = {"V=other", NULL};
            setenv("V", "own", 1);
            switch (form % 10) {
            case 0: execve("/bin/sh", argv, envp); break;
            case 1: execvp("sh", argv); break;
            case 2: execl("/bin/sh", "sh", "-c", "echo \"$0 $# $7 $V\"", "a", "b", "c", "d", "e", "f", "g", "h", NULL); break;
            case 3: execlp("sh", "sh", "-c", "echo \"$0 $# $7 $V\"", "a", "b", "c", "d", "e", "f", "g", "h", NULL); break;
            case 4: execle("/bin/sh", "sh", "-c", "echo \"$0 $# $7 $V\"", "a", "b", "c", "d", "e", "f", "g", "h", NULL, envp); break;
            case 5: execle("/bin/sh", "sh", "-c", "echo $V", NULL, envp); break;
            case 6: execvpe("sh", argv, envp); break;
            case 7: execv("/bin/sh", argv); break;
            case 8: fexecve(open("/bin/sh", O_RDONLY), argv, envp); break;
            case 9: execveat(open("/bin", O_RDONLY), "sh", argv, envp, 0); break;
            }
            _exit(99);
        }
        printf("exec %d: %d\n", form, child_status(child));
        fflush(stdout);
    }
    unsetenv("V");
    TRY(execlp("ginnel-no-such-program", "x", NULL));
    TRY(execvp("", environ));
    TRY(execl("/", "x", NULL));
    TRY(execveat(-1, "sh", environ, environ, 0));

    volatile int shared = 1;
    pid_t child = vfork();
    if (child == 0) {
        shared = 2;
        close(0);
        _exit(7);
    }
    printf("vfork: %d %d %d\n", child_status(child), shared, fcntl(0, F_GETFD) >= 0);
    pthread_t thread;
    pthread_create(&thread, NULL, vfork_in_thread, NULL);
    pthread_join(thread, NULL);
    fflush(stdout);

    child = _Fork();
    if (child == 0)
        _exit(8);
    printf("_Fork: %d\n", child_status(child));
    child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        _exit(9);
    printf("SYS_clone: %d\n", child_status(child));
    struct clone_args args = {.exit_signal = SIGCHLD};
    child = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (child == 0)
        _exit(10);
    printf("SYS_clone3: %d\n", child_status(child));
    char *stack = malloc(1 << 16);
    value = 1;
    child = clone(cloned, stack + (1 << 16), SIGCHLD, &value);
    printf("clone: %d %d\n", child_status(child), value);
    child = clone(cloned, stack + (1 << 16), CLONE_VM | CLONE_VFORK | SIGCHLD, &value);
    printf("clone with memory: %d %d\n", child_status(child), value);
    TRY(clone(NULL, stack, SIGCHLD, &value));
    free(stack);

    char *argv[] = {"sh", "-c", "read line <&5; echo spawned $line", NULL};
    posix_spawn_file_actions_t actions;
    pipe(p);
    posix_spawn_file_actions_init(&actions);
    TRY(posix_spawn_file_actions_adddup2(&actions, p[0], 5));
    TRY(posix_spawnp(&child, "sh", &actions, NULL, argv, environ));
    /* Only now can the child say its line. */
    write(p[1], "line\n", 5);
    TRY(child_status(child));
    TRY(posix_spawn(&child, "/nowhere", NULL, NULL, argv, environ));
    TRY(posix_spawnp(&child, "ginnel-no-such-program", NULL, NULL, argv, environ));
    posix_spawn_file_actions_destroy(&actions);
    close(p[0]), close(p[1]);
    TRY(system("exit 3"));
    TRY(system(NULL));
    FILE *from = popen("echo popened", "r");
    char line[32] = "";
    fgets(line, sizeof line, from);
    printf("%s", line);
    TRY(pclose(from));
    TRY(popen("true", "?") == NULL ? -1 : 0);
    fflush(stdout);
    int master;
    child = forkpty(&master, NULL, NULL, NULL);
    if (child == 0) {
        printf("on a terminal: %d\n", isatty(0));
        fflush(stdout);
        _exit(12);
    }
    /* A terminal may hand over a line in pieces: first the words, then its end. */
    ssize_t n = 0;
    while (memchr(line, '\n', n) == NULL) {
        ssize_t more = read(master, line + n, sizeof line - 1 - n);
        if (more <= 0)
            break;
        n += more;
    }
    printf("%.*s%d\n", (int)n, line, child_status(child));
    close(master);
    fflush(stdout);
    if ((child = fork()) == 0) {
        pipe(p);
        if ((child = fork()) == 0) {
            int result = daemon(0, 0);
            dprintf(p[1], "daemon: %d %d\n", result, (int)read(0, line, 1));
            _exit(0);
        }
        close(p[1]);
        waitpid(child, NULL, 0);
        n = read(p[0], line, sizeof line - 1);
        printf("%.*s", (int)n, line);
        fflush(stdout);
        _exit(0);
    }
    TRY(child_status(child));
}

static int list(int fd, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int n = vdprintf(fd, format, arguments);
    va_end(arguments);
    return n;
}

static void streams(void) {
    int s[2];
    char buf[256] = "";
    tcp_pair(s);
    TRY(dprintf(s[0], "%d %s %.1f %ld %.1f %c %x %.1f %d %.1f %s %.1f %.1f %.1f %.1f %.1f %Lf\n", 1, "two", 3.5, 4L, 5.5, '6', 7, 8.5, 9, 10.5,
                "eleven", 12.5, 13.5, 14.5, 15.5, 16.5, 17.5L));
    TRY(list(s[0], "%d %.2f\n", 1, 2.25));
    FILE *file = fdopen(s[0], "r+");
    TRY(fprintf(file, "stream\n"));
    TRY(fclose(file));
    TRY(fcntl(s[0], F_GETFD));
    file = _IO_fdopen(s[1], "r");
    while (fgets(buf, sizeof buf, file))
        printf("%s", buf);
    TRY(_IO_fclose(file));
    TRY(fdopen(-1, "r") == NULL ? -1 : 0);
    TRY(dprintf(-1, "x"));
    file = fopen("/dev/null", "r");
    file = freopen("/proc/self/comm", "r", file);
    TRY(fgets(buf, sizeof buf, file) != NULL);
    fclose(file);
    int p[2];
    pipe(p);
    struct aiocb request = {.aio_fildes = p[1], .aio_buf = "aio", .aio_nbytes = 3};
    const struct aiocb *requests[] = {&request};
    TRY(aio_write(&request));
    while (aio_error(&request) == EINPROGRESS)
        aio_suspend(requests, 1, NULL);
    TRY(aio_return(&request));
    TRY(read(p[0], buf, 3));
    close(p[0]), close(p[1]);
}

static void by_number(void) {
    int s[2];
    char buf[16];
    tcp_pair(s);
    struct iovec iov = {buf, 4};
    struct pollfd fd = {.fd = s[0], .events = POLLIN};
    struct timespec limit = {60, 0}, invalid = {-1, 0};
    TRY(syscall(SYS_write, s[0], "numb", 4));
    TRY(syscall(SYS_read, s[1], buf, 4));
    TRY(syscall(SYS_sendto, s[0], "numb", 4, 0, NULL, 0));
    TRY(syscall(SYS_recvfrom, s[1], buf, 4, MSG_WAITALL, NULL, NULL));
    TRY(syscall(SYS_writev, s[0], &iov, 1));
    TRY(syscall(SYS_preadv2, s[1], &iov, 1, -1L, 0L, 0));
    TRY(syscall(SYS_sendto, s[1], "x", 1, 0, NULL, 0));
    wait_for_bytes(s[0], 1);
    TRY(syscall(SYS_ppoll, &fd, 1, &limit, NULL, 8));
    printf("time left: %d\n", limit.tv_sec == 59);
    TRY(syscall(SYS_ppoll, &fd, 1, &invalid, NULL, 8));
    fd_set in;
    FD_ZERO(&in); FD_SET(s[0], &in);
    limit = (struct timespec){60, 0};
    struct { const void *mask; size_t size; } mask = {NULL, 8};
    TRY(syscall(SYS_pselect6, s[0] + 1, &in, NULL, NULL, &limit, &mask));
    TRY(syscall(SYS_pselect6, s[0] + 1, &in, NULL, NULL, NULL, NULL));
    printf("time left: %d\n", limit.tv_sec == 59);
    TRY(syscall(SYS_fcntl, s[0], F_SETFL, O_NONBLOCK));
    TRY(syscall(SYS_recvfrom, s[0], buf, 4, 0, NULL, NULL));
    TRY(syscall(SYS_read, s[0], buf, 4));
    TRY(syscall(SYS_gettid) > 0);
    TRY(syscall(SYS_close, s[0]));
    TRY(syscall(SYS_close, s[0]));
    TRY(syscall(100000));
    close(s[1]);
}

static int wait_fd[2], wait_ep;
static char wait_buf[16];

static void cancelled_cleanup(void *name) {
    printf("%s: cleaned up\n", (char *)name);
}

#define WAITER(name, call)                                                                                                               \
    static void *wait_##name(void *argument) {                                                                                           \
        pthread_cleanup_push(cancelled_cleanup, #name);                                                                                  \
        (void)!(call);                                                                                                                   \
        pthread_cleanup_pop(0);                                                                                                          \
        return argument;                                                                                                                 \
    }

WAITER(read, read(wait_fd[0], wait_buf, 1))
WAITER(recv, recv(wait_fd[0], wait_buf, 1, 0))
WAITER(recvmsg, recvmsg(wait_fd[0], &(struct msghdr){.msg_iov = &(struct iovec){wait_buf, 1}, .msg_iovlen = 1}, 0))
WAITER(poll, poll(&(struct pollfd){.fd = wait_fd[0], .events = POLLIN}, 1, -1))
WAITER(select, ({ fd_set in; FD_ZERO(&in); FD_SET(wait_fd[0], &in); select(wait_fd[0] + 1, &in, NULL, NULL, NULL); }))
WAITER(epoll, epoll_wait(wait_ep, &(struct epoll_event){0}, 1, -1))
WAITER(accept, accept(wait_fd[1], NULL, NULL))
WAITER(system, system("exec sleep 60"))

/* A thread blocked in each of these can be cancelled, and unwinds through the shim. */
static void cancellation(void) {
    void *(*waiters[])(void *) = {wait_read, wait_recv, wait_recvmsg, wait_poll, wait_select, wait_epoll, wait_accept, wait_system};
    int s[2];
    tcp_pair(s);
    wait_fd[0] = s[0];
    wait_fd[1] = socket(AF_INET, SOCK_STREAM, 0);
    listen(wait_fd[1], 1);
    wait_ep = epoll_create1(0);
    for (size_t i = 0; i < sizeof waiters / sizeof *waiters; i++) {
        pthread_t thread;
        void *result = NULL;
        pthread_create(&thread, NULL, waiters[i], NULL);
        usleep(20000);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        printf("cancelled: %d\n", result == PTHREAD_CANCELED);
        fflush(stdout);
    }
}

int main(void) {
    setlinebuf(stdout);
    bytes();
    messages();
    readiness();
    descriptors();
    processes();
    streams();
    by_number();
    cancellation();
    return 0;
}
