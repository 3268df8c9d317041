// Programs that cannot have a preloaded library, or pass it by, inherit a connection: a static one, one for musl, one that Go made, a script whose interpreter is
// such a program, one that is set-user-id (where this is root's, who alone can make another's). Each starts as ever, finds the bytes that had come before it was started, and its parent goes on afterwards.
#include "check.h"
#include <sys/stat.h>

enum { LENGTH = 40000 };

static char path[PATH_MAX], number[16], length[16];

static void peer(int fd) {
    put_pattern(fd, LENGTH, 1);
    tell();
    get_pattern(fd, LENGTH, 1);
    warm_up(fd, true);
}

static void by_execv(char **args) { execv(path, args); }
static void by_execl(char **args) { execl(path, args[0], args[1], args[2], NULL); }
static void by_execle(char **args) { execle(path, args[0], args[1], args[2], NULL, environ); }
static void by_execvp(char **args) {
    char folder[PATH_MAX], *name;
    strcpy(folder, path);
    name = strrchr(folder, '/');
    *name = 0;
    setenv("PATH", folder, 1);
    execvp(name + 1, args);
}

static pid_t forked(void (*start)(char **), char **args) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        start(args);
        _exit(9);
    }
    return child;
}

static pid_t started(int way, char **args) {
    pid_t child;
    switch (way) {
    case 0: return forked(by_execv, args);
    case 1: return forked(by_execl, args);
    case 2: return forked(by_execle, args);
    case 3: return forked(by_execvp, args);
    case 4: IS(posix_spawn(&child, path, NULL, NULL, args, environ), 0); return child;
    default:
        child = vfork();
        if (child == 0) {
            execv(path, args);
            _exit(9);
        }
        return child;
    }
}

static void inherited_by(const char *name) {
    for (int way = 0; way < 6; way++) {
        int fd = with_peer(peer);
        snprintf(number, sizeof number, "%d", fd), snprintf(length, sizeof length, "%d", LENGTH);
        char *args[] = {path, number, length, NULL};
        hear();
        IS(ended(started(way, args)), 0);
        warm_up(fd, false);
        close(fd);
        peer_ends();
    }
    say("echoed by %s", name);
}

static void by_another_user(const char *folder) {
    char text[4096];
    snprintf(path, sizeof path, "%s/echo_raw", folder);
    int from = open(path, O_RDONLY);
    snprintf(path, sizeof path, "%s/set-id-XXXXXX", folder);
    int to = mkstemp(path);
    CHECK(from >= 0 && to >= 0);
    for (ssize_t n; (n = read(from, text, sizeof text)) != 0;) CHECK(n > 0 && write(to, text, (size_t)n) == n);
    // In this order: a change of the owner takes the bit away.
    IS(fchown(to, 65534, 65534), 0);
    IS(fchmod(to, 04755), 0);
    close(from), close(to);
    inherited_by("a set-user-id program");
    IS(unlink(path), 0);
}

int main(int argc, char **argv) {
    static const char *const names[] = {"echo_raw-static", "echo_raw-go", "echo_raw-musl"};
    CHECK(argc == 2);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", argv[1], names[i]);
        if (access(path, X_OK) == 0) inherited_by(names[i]);
    }
    snprintf(path, sizeof path, "%s/script-XXXXXX", argv[1]);
    int script = mkstemp(path);
    CHECK(script >= 0 && fchmod(script, 0700) == 0);
    dprintf(script, "#!%s/echo_raw-static\n", argv[1]);
    close(script);
    inherited_by("a script");
    IS(unlink(path), 0);
    if (geteuid() == 0) by_another_user(argv[1]);
}
