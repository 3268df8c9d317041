// Executes a script of system calls and says what each answered, one line for each step: once
// plainly and once under Ginnel, the two texts are the same, or one of them is wrong.
//
//   interpret SCRIPT SECONDS [ADDRESS PORT MICROSECONDS]
//   interpret - SECONDS ADDRESS PORT MICROSECONDS
//
// A line of a script is `[go] [ACTOR] STEP WORDS…`; the steps are in the table below, and each is
// described where it is done. After each step the interpreter gives loopback time to deliver, so
// that no answer depends on how fast it was. A script that takes longer than SECONDS is said to
// hang, at the step which it had come to. With an address, actor B is the second form's, which may
// be in another machine: each connection is between the two, and MICROSECONDS is how long a network
// takes to deliver.
#include "actors.h"

static const struct step {
    const char *name;
    void (*does)(const struct words *);
    bool settles;  // it may change what others see
} STEPS[] = {
    {"tcp", do_connection, true},        {"listen", do_listen, false}, {"connect", do_connect, true},
    {"accept", do_accept, true},  {"pipe", do_pipe, false},     {"event", do_event, false},
    {"epoll", do_epoll, false},   {"dup", do_dup, false},       {"dup2", do_dup, true},
    {"shut", do_shut, true},      {"close", do_close, true},    {"opt", do_option, true},
    {"error", do_error, true},    {"write", do_write, true},    {"send", do_write, true},
    {"writev", do_write, true},   {"sendmsg", do_write, true},  {"sendfile", do_write, true},
    {"read", do_read, true},      {"recv", do_read, true},      {"readv", do_read, true},
    {"recvmsg", do_read, true},   {"fill", do_fill, true},      {"drain", do_drain, true},
    {"inq", do_queue, false},     {"outq", do_queue, false},    {"add", do_ctl, false},
    {"mod", do_ctl, false},       {"del", do_ctl, false},       {"wait", do_wait, false},
    {"pwait", do_wait, false},    {"poll", do_poll, false},     {"ppoll", do_poll, false},
    {"select", do_select, false}, {"fork", do_fork, true},      {"exit", do_exit, true},
    {"collect", do_collect, false}, {"call", do_call, true},
};

static void execute(const char *line) {
    struct words w;
    split(&w, line);
    for (size_t i = 0; i < sizeof STEPS / sizeof *STEPS; i++) {
        if (strcmp(STEPS[i].name, word(&w, 0))) continue;
        STEPS[i].does(&w);
        if (STEPS[i].settles) settle();
        return;
    }
    say("no such step");
}

static volatile int line_number;

static void show(void) {
    char text[ANSWER + 32];
    int n = snprintf(text, sizeof text, "%d %s\n", line_number, answer.is);
    if (write(1, text, (size_t)n) != n) _exit(99);
}

static void hang(int signal) {
    (void)signal;
    char text[64];
    int n = snprintf(text, sizeof text, "%d HANG\n", line_number);
    if (actors[0].there && !far.there) kill(actors[0].pid, SIGKILL);
    if (write(1, text, (size_t)n) != n) _exit(99);
    _exit(97);
}

static void run(char *line) {
    answer.length = 0;
    answer.is[0] = 0;
    bool goes = !strncmp(line, "go ", 3);
    if (goes) line += 3;
    bool others = line[0] && line[1] == ' ';
    if (!others) {
        // A step of the first thread that goes beside itself is a step like any other.
        execute(line);
    } else {
        struct actor *a = actor(line[0]);
        if (!a || a->busy) {
            say("%s", a ? "busy" : "not there");
        } else if (!post(a, line + 2)) {
            say("gone");
        } else if (goes) {
            say("goes");
        } else {
            take(a);
        }
    }
    // Whoever sleeps and is woken by this step is to have taken what it is about before the next.
    if (anybody_busy()) sleep_us(4 * settle_us);
    show();
}

static void prepare(const char *seconds) {
    signal(SIGPIPE, SIG_IGN);
    struct sigaction action = {.sa_handler = hang};
    sigaction(SIGALRM, &action, NULL);
    prctl(PR_SET_TIMERSLACK, 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int how = PROT_READ | PROT_WRITE;
    shared = mmap(NULL, sizeof *shared, how, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) _exit(98);
    pattern_file = high(memfd_create("pattern", 0));
    uint8_t bytes[2 * BLOCK];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = pattern(0, i);
    if (write(pattern_file, bytes, sizeof bytes) != sizeof bytes) _exit(98);
    alarm((unsigned)atoi(seconds));
    here.s_addr = htonl(INADDR_LOOPBACK);
}

// Meets the other machine's interpreter.
static void meet(char **argv, bool calls) {
    settle_us = atol(argv[5]);
    // A network's buffers go on filling for a while: windows grow, and are told with a delay.
    if (settle_us > 5000) still = 12;
    far_meet(argv[3], argv[4], calls);
    here = far.address;
    actors[0].there = true;
}

int main(int argc, char **argv) {
    bool serves = argc == 6 && !strcmp(argv[1], "-");
    if (serves) {
        prepare(argv[2]);
        meet(argv, true);
        far_serve();
        return 0;
    }
    FILE *script = argc == 3 || argc == 6 ? fopen(argv[1], "r") : NULL;
    if (!script) {
        return fprintf(stderr, "usage: interpret SCRIPT SECONDS [ADDRESS PORT MICROSECONDS]\n"), 2;
    }
    static char lines[1024][512];
    int count = 0;
    while (count < 1024 && fgets(lines[count], sizeof lines[count], script)) count++;
    fclose(script);
    prepare(argv[2]);
    if (argc == 6) meet(argv, false);
    for (int i = 0; i < count; i++) {
        lines[i][strcspn(lines[i], "\n")] = 0;
        line_number = i + 1;
        if (!strncmp(lines[i], "room ", 5)) room = strtoul(lines[i] + 5, NULL, 0);
        if (lines[i][0] == '#' || !lines[i][0] || !strncmp(lines[i], "room ", 5)) continue;
        run(lines[i]);
    }
    struct words none = {0};
    answer.length = 0;
    do_exit(&none);
    return 0;
}
