// Many connections that speak for a while and are then idle: `crowd server ADDRESS PORT COUNT` answers, `crowd client ADDRESS PORT COUNT MS` speaks on all of them for
// so long, a dozen times at least, says so, and once SIGUSR1 has come speaks on all of them once more.
#include "check.h"

enum { PIECE = 3000, ANSWER = 100, LEAST = 12 };

static volatile sig_atomic_t over;
static void end(int signal) { (void)signal, over = 1; }

static bool answer(int fd) {
    char piece[PIECE];
    ssize_t n = recv(fd, piece, sizeof piece, MSG_WAITALL);
    if (n == 0) return false;
    IS(n, sizeof piece);
    IS(send(fd, piece, ANSWER, MSG_NOSIGNAL), ANSWER);
    return true;
}

static void speak(int *fds, int count) {
    char piece[PIECE] = {0};
    for (int i = 0; i < count; i++) IS(send(fds[i], piece, sizeof piece, MSG_NOSIGNAL), sizeof piece);
    for (int i = 0; i < count; i++) IS(recv(fds[i], piece, ANSWER, MSG_WAITALL), ANSWER);
}

int main(int argc, char **argv) {
    CHECK(argc >= 5);
    bool client = !strcmp(argv[1], "client");
    int count = atoi(argv[4]), *fds = calloc((size_t)count, sizeof *fds);
    struct rlimit limit = {(rlim_t)count + 1000, (rlim_t)count + 1000};
    CHECK(fds && signal(SIGUSR1, end) != SIG_ERR);
    IS(setrlimit(RLIMIT_NOFILE, &limit), 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[3]))};
    CHECK(inet_pton(AF_INET, argv[2], &at.sin_addr) == 1);
    if (client) {
        for (int i = 0; i < count; i++) {
            fds[i] = socket(AF_INET, SOCK_STREAM, 0);
            IS(connect(fds[i], (void *)&at, sizeof at), 0);
        }
        int64_t until = now_ms() + atoi(argv[5]);
        // And as often as it takes for both ends to agree, however slow the machine is.
        for (int rounds = 0; rounds < LEAST || now_ms() < until; rounds++) {
            speak(fds, count);
            poll(NULL, 0, 20);
        }
        say("idle");
        while (!over) poll(NULL, 0, 50);
        speak(fds, count);
    } else {
        int listener = listen_at(&at, 4096);
        say("listening");
        for (int i = 0; i < count; i++) CHECK((fds[i] = accept(listener, NULL, NULL)) >= 0);
        for (bool more = true; more;)
            for (int i = 0; i < count; i++) more = answer(fds[i]);
    }
    say("all of %d", count);
}
