// A transfer with a time limit by alarm and siglongjmp: whatever was under way, the next calls work, and closing does not wait.
#include "check.h"
#include <setjmp.h>

enum { TURNS = 25, SIZE = 65536 };

static sigjmp_buf away;
static char bytes[SIZE];

static void leave(int signal) { (void)signal, siglongjmp(away, 1); }

static void ask(const struct sockaddr_in *at) {
    for (int i = 0; i < TURNS; i++) {
        int fd = connect_to(at);
        warm_up(fd, true);
        while (send(fd, bytes, SIZE, MSG_NOSIGNAL) > 0) {}
        close(fd);
    }
    exit(0);
}

int main(void) {
    struct sockaddr_in at;
    int listener = listen_on(&at);
    pid_t peer = fork();
    if (peer == 0) ask(&at);
    struct sigaction handler = {.sa_handler = leave};
    IS(sigaction(SIGALRM, &handler, NULL), 0);
    for (volatile int i = 0; i < TURNS; i++) {
        int fd = accept_from(listener);
        warm_up(fd, false);
        struct itimerval limit = {.it_value.tv_usec = 10000 + i * 37};
        if (sigsetjmp(away, 1) == 0) {
            IS(setitimer(ITIMER_REAL, &limit, NULL), 0);
            for (;;) {
                if (i % 2) poll(&(struct pollfd){fd, POLLIN, 0}, 1, -1);
                CHECK(read(fd, bytes, SIZE) > 0);
            }
        }
        int64_t begin = now_ms();
        close(fd);
        CHECK(now_ms() - begin < PATIENCE / 2);
    }
    IS(ended(peer), 0);
    say("%d transfers left", TURNS);
}
