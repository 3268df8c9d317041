// What the rules of a switch, a close and a death promise, each in a situation that goes wrong without it: `rules NAME`. All of it is so on plain TCP too, but for
// bytes that go past the shim.
#include "check.h"
#include "raw.h"
#include <sys/syscall.h>

// Shared with the peer.
static volatile int *flag;

static void share(void) {
    flag = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(flag != MAP_FAILED);
}

static void past_the_shim(int fd, const char *text) { IS(raw_call(SYS_write, fd, (long)text, (long)strlen(text), 0, 0), strlen(text)); }

static void is_reset(int fd) {
    char c;
    ssize_t n;
    do n = recv(fd, &c, 1, 0);
    while (n > 0);
    CHECK(n == -1 && errno == ECONNRESET);
}

// At the first send, or a later one if the switch could not be made before.
static void refuses(int fd) {
    for (int i = 0; i < 200 && send(fd, "x", 1, MSG_NOSIGNAL) == 1; i++) sleep_ms(10);
    CHECK(send(fd, "x", 1, MSG_NOSIGNAL) < 0);
    CHECK(errno == ECONNRESET || errno == EPIPE);
}

// More exchanges, with pauses: on a busy machine the ends may not have met before.
static void settle(int fd, bool first) {
    for (int i = 0; i < 40; i++) {
        if (first) put_pattern(fd, 16, i), get_pattern(fd, 16, i + 1);
        else get_pattern(fd, 16, i), put_pattern(fd, 16, i + 1);
        sleep_ms(3);
    }
}

static void (*peer_runs)(int fd);

static void settled_peer(int fd) {
    settle(fd, true);
    peer_runs(fd);
}

static int with_settled_peer(void (*peer)(int fd)) {
    peer_runs = peer;
    int fd = with_peer(settled_peer);
    settle(fd, false);
    return fd;
}

// Until whoever watches has seen enough.
static void wait_to_be_seen(void) {
    sigset_t usr1;
    int got;
    sigemptyset(&usr1), sigaddset(&usr1, SIGUSR1);
    IS(sigprocmask(SIG_BLOCK, &usr1, NULL), 0);
    say("seen?");
    IS(sigwait(&usr1, &got), 0);
}

// --- bypassed_in_ring: bytes that go past the shim into a connection whose bytes go through a ring.

static void sees_reset(int fd) {
    get_pattern(fd, 100, 3);
    tell();
    is_reset(fd);
    tell();
    close(fd);
}

static void bypassed_in_ring(void) {
    int fd = with_settled_peer(sees_reset);
    put_pattern(fd, 100, 3);
    hear();
    past_the_shim(fd, "lost");
    FILE *file = fdopen(dup(fd), "w");  // no ring under stdio: a switch
    CHECK(file);
    refuses(fd);
    hear();
    wait_to_be_seen();
    peer_ends();
}

// --- bypassed_on_tcp: the same while TCP carries them, and the next byte would go into the ring. For small rings.

enum { OVER = 3 * 4096 };

static void reads_late(int fd) {
    hear();
    get_pattern(fd, OVER, 3);
    tell();
    hear();
    is_reset(fd);
    tell();
    close(fd);
}

static void bypassed_on_tcp(void) {
    int fd = with_settled_peer(reads_late);
    uint8_t text[OVER];
    fill(text, 0, OVER, 3);
    put_all(fd, text, OVER);  // more than a ring holds, and nobody reads: TCP takes it
    tell();
    hear();
    past_the_shim(fd, "lost");
    refuses(fd);
    tell();
    hear();
    wait_to_be_seen();
    peer_ends();
}

// --- asleep_before: a thread sleeps in the kernel's receive before the two ends have met.

static int sleeper_fd;
static void *sleeps(void *unused) {
    char text[8] = "";
    (void)unused;
    IS(recv(sleeper_fd, text, 5, 0), 5);
    CHECK(!strcmp(text, "hello"));
    return NULL;
}

static void asleep_before(void) {
    struct sockaddr_in at;
    pthread_t thread;
    int listener = listen_on(&at), a = connect_to(&at), b = accept_from(listener);
    sleeper_fd = b;
    IS(pthread_create(&thread, NULL, sleeps, NULL), 0);
    sleep_ms(50);
    for (int i = 0; i < ROUNDS; i++) put_pattern(b, 16, i), get_pattern(a, 16, i);
    put_all(a, "hello", 5);
    IS(pthread_join(thread, NULL), 0);
    for (int i = 0; i < 40; i++) warm_pair(a, b), sleep_ms(1);
    say("woken by what was sent");
}

// --- busy_writer: the end that wrote computes and makes no call, while the other wants the rest from its kernel.

static void computes(int fd) {
    put_pattern(fd, 3000, 4);
    tell();
    while (!*flag) {}
    close(fd);
}

static void get_past_the_shim(int fd, uint8_t *text, size_t size) {
    for (size_t got = 0; got < size;) {
        long n = raw_call(SYS_recvfrom, fd, (long)(text + got), (long)(size - got), 0, 0);
        CHECK(n > 0);
        got += (size_t)n;
    }
}

static void busy_writer(void) {
    share();
    int fd = with_settled_peer(computes);
    uint8_t text[2000];
    hear();
    get_pattern(fd, 1000, 4);
    FILE *file = fdopen(dup(fd), "r");
    CHECK(file);
    // Past the shim there is nothing but the kernel's socket.
    get_past_the_shim(fd, text, sizeof text);
    same(text, 1000, sizeof text, 4);
    *flag = 1;
    fclose(file);
    peer_ends();
    say("re-sent while it computed");
}

// --- held: once an end was handed over, its bytes stay out of rings.

static void writes_again(int fd) {
    hear();
    put_pattern(fd, 3000, 9);
    (void)!read(side, &(char){0}, 1);
}

static void held(void) {
    int fd = with_settled_peer(writes_again);
    uint8_t text[3000];
    FILE *file = fdopen(dup(fd), "r");
    CHECK(file);
    tell();
    get_past_the_shim(fd, text, sizeof text);
    same(text, 0, sizeof text, 9);
    fclose(file);
    peer_ends();
    say("all of it came by TCP");
}

// --- asleep_for_room: a thread sleeps in a send that finds no room; others are not kept waiting. For small rings.

enum { ENDLESS = 64 << 20 };

static void waits(int fd) {
    hear();
    close(fd);
}

static void *sends(void *unused) {
    char *text = calloc(1, ENDLESS);
    (void)unused;
    while (send(sleeper_fd, text, ENDLESS, MSG_NOSIGNAL) > 0) {}
    return NULL;
}

static void asleep_for_room(void) {
    int fd = with_settled_peer(waits);
    pthread_t thread;
    sleeper_fd = fd;
    IS(pthread_create(&thread, NULL, sends, NULL), 0);
    sleep_ms(500);
    // There may be a little room, less than wakes a sleeper.
    static char text[4096];
    ssize_t n;
    do n = send(fd, text, sizeof text, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n > 0);
    CHECK(n == -1 && errno == EAGAIN);
    FAILS(recv(fd, &(char){0}, 1, MSG_DONTWAIT), EAGAIN);
    tell();
    IS(pthread_join(thread, NULL), 0);
    peer_ends();
    say("no room, said at once");
}

// --- killed_unread: an end is killed that has not read everything, and whose kernel knows of nothing unread.

static void reads_until_empty(int fd) {
    while (recv(fd, &(char){0}, 1, MSG_DONTWAIT) == 1) {}
    tell();
    for (;;) pause();
}

static void killed_unread(void) {
    int fd = with_settled_peer(reads_until_empty);
    hear();
    put_pattern(fd, 1000, 1);
    IS(kill(other, SIGKILL), 0);
    CHECK(WTERMSIG(ended(other)) == SIGKILL);
    FAILS(recv(fd, &(char){0}, 1, 0), ECONNRESET);
    say("reset");
}

// --- killed_beside_a_token: an end is killed that has read everything, but for a byte over TCP that was only to wake it.

static void reads_what_it_was_woken_for(int fd) {
    char byte;
    FAILS(recv(fd, &byte, 1, MSG_DONTWAIT), EAGAIN);
    IS(polled(fd, POLLIN, 5), 0);
    tell();
    hear();
    IS(recv(fd, &byte, 1, MSG_DONTWAIT), 1);
    kill(getpid(), SIGKILL);
}

static void killed_beside_a_token(void) {
    int fd = with_settled_peer(reads_what_it_was_woken_for);
    hear();
    put_all(fd, "x", 1);
    tell();
    IS(recv(fd, &(char){0}, 1, 0), 0);
    CHECK(WTERMSIG(ended(other)) == SIGKILL);
    say("ended");
}

// --- last_wake_up: an end closes with bytes queued in its kernel, in the moment at which it is woken. For small rings and tokens.

enum { QUEUED = 400000, CLOSES = 25 };

static void wakes(int fd) {
    while (!*flag) {}
    put_all(fd, "x", 1);
    sleep_ms(20);
    get_pattern(fd, QUEUED, 6);
    IS(recv(fd, &(char){0}, 1, 0), 0);
}

static void last_wake_up(void) {
    share();
    static uint8_t text[QUEUED];
    fill(text, 0, QUEUED, 6);
    for (int i = 0; i < CLOSES; i++) {
        *flag = 0;
        int fd = with_settled_peer(wakes), room = 1 << 20;
        IS(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
        put_all(fd, text, QUEUED);
        IS(polled(fd, POLLIN, 5), 0);
        *flag = 1;
        char c;
        while (recv(fd, &c, 1, MSG_DONTWAIT) != 1) CHECK(errno == EAGAIN);
        IS(close(fd), 0);
        peer_ends();
    }
    say("%d bytes arrived each time", QUEUED);
}

// --- heirs: what an end wrote before it closed and ended stays where it is until it is read.

static void ends_at_once(int fd) {
    put_pattern(fd, 20000, 7);
    close(fd);
    tell();
    _exit(0);
}

static void heirs(void) {
    int fd = with_settled_peer(ends_at_once), ends[2];
    hear();
    IS(ended(other), 0);
    for (int i = 0; i < 30; i++) {
        pair_here(ends);
        put_pattern(ends[0], 20000, i), get_pattern(ends[1], 20000, i);
        put_pattern(ends[1], 20000, i), get_pattern(ends[0], 20000, i);
        // Some stay: nothing of theirs is free again.
        if (i % 2) close(ends[0]), close(ends[1]);
    }
    get_pattern(fd, 20000, 7);
    IS(recv(fd, &(char){0}, 1, 0), 0);
    say("still there");
}

// --- clean_then_reset: an end that closed cleanly and is then sent to answers with a reset: what it wrote is read to its end all the same.

static void closes(int fd) {
    put_pattern(fd, 3000, 8);
    close(fd);
    tell();
}

static void clean_then_reset(void) {
    int fd = with_settled_peer(closes);
    hear();
    // It goes to nobody, and TCP says so: the next call of the kernel's would be told.
    IS(send(fd, "x", 1, MSG_NOSIGNAL), 1);
    CHECK(polled(fd, POLLERR, PATIENCE) & POLLERR);
    say("sent to nobody");
    char c;
    ssize_t n, got = 0;
    for (; (n = recv(fd, &c, 1, 0)) == 1; got++) CHECK(c == (char)pattern((size_t)got, 8));
    say("%s", got == 3000 && n == 0 ? "read to the end" : "lost");
    peer_ends();
}

// --- told_once: the first send after a reset says so, and only the next is refused, with SIGPIPE, for which a program that heard of the reset is not there any more.

static void resets(int fd) {
    hear();
    IS(setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger)), 0);
    close(fd);
    tell();
}

static void told_once(void) {
    int fd = with_settled_peer(resets);
    tell();
    hear();
    CHECK(polled(fd, POLLERR, PATIENCE) & POLLERR);
    FAILS(send(fd, "x", 1, 0), ECONNRESET);
    FAILS(send(fd, "x", 1, MSG_NOSIGNAL), EPIPE);
    say("told, then refused");
    peer_ends();
}

// --- closed_sets: one socket in one epoll set after the other: removed from it, or the set is closed as it is.

static void closed_sets(void) {
    int ends[2], set[4];
    pair_here(ends);
    for (int i = 0; i < 4; i++) {
        set[i] = epoll_create1(0);
        IS(epoll_add(set[i], ends[0], EPOLLIN), 0);
        put_all(ends[1], "x", 1);
        IS(epolled(set[i], ends[0], PATIENCE), EPOLLIN);
        get_all(ends[0], &(char){0}, 1);
        if (i < 2) IS(epoll_ctl(set[i], EPOLL_CTL_DEL, ends[0], NULL), 0);
        else close(set[i]);
    }
    wait_to_be_seen();
}

// --- fault_handlers: a receive that was interrupted by a handler that restarts calls sleeps on, where handlers of the thread's own faults say nothing of restarts.

static void nothing(int signal) { (void)signal; }

static void *receives_one(void *of) {
    char byte;
    IS(recv(*(int *)of, &byte, 1, 0), 1);
    return NULL;
}

static void fault_handlers(void) {
    int ends[2];
    pthread_t thread;
    for (int *fault = (int[]){SIGSEGV, SIGBUS, SIGILL, SIGFPE, 0}; *fault; fault++) IS(sigaction(*fault, &(struct sigaction){.sa_handler = nothing}, NULL), 0);
    IS(sigaction(SIGUSR2, &(struct sigaction){.sa_handler = nothing, .sa_flags = SA_RESTART}, NULL), 0);
    pair_here(ends);
    IS(pthread_create(&thread, NULL, receives_one, &ends[0]), 0);
    for (int i = 0; i < 5; i++) {
        sleep_ms(20);
        IS(pthread_kill(thread, SIGUSR2), 0);
    }
    sleep_ms(20);
    wait_to_be_seen();
    put_all(ends[1], "x", 1);
    CHECK(!joined(thread));
}

// --- one_set_for_two: two threads sleep on one epoll set, which has a connection before it is carried.

static int set_of_two, answered;

static void *answers(void *unused) {
    struct epoll_event event;
    for (char byte;;) {
        IS(epoll_wait(set_of_two, &event, 1, -1), 1);
        ssize_t got = recv(answered, &byte, 1, 0);
        if (got == 0) return unused;
        if (got < 0) CHECK(errno == EAGAIN);
        else put_all(answered, &byte, 1);
    }
}

static void one_set_for_two(void) {
    struct sockaddr_in at;
    pthread_t threads[2];
    int listener = listen_on(&at), asks = connect_to(&at);
    answered = accept_from(listener);
    nonblocking(answered);
    set_of_two = epoll_create1(0);
    IS(epoll_add(set_of_two, answered, EPOLLIN), 0);
    for (int i = 0; i < 2; i++) IS(pthread_create(&threads[i], NULL, answers, NULL), 0);
    for (int i = 0; i < 2 * ROUNDS; i++) {
        if (i % 4 == 0) sleep_ms(2);
        put_all(asks, "x", 1);
        get_all(asks, &(char){0}, 1);
    }
    IS(shutdown(asks, SHUT_WR), 0);
    for (int i = 0; i < 2; i++) CHECK(!joined(threads[i]));
    wait_to_be_seen();
}

// --- closed_at_first_use: connections that one thread uses for the first time while another closes them. One pair stays.

static volatile int used_first = -1;

static void *uses(void *unused) {
    for (int fd; (fd = used_first) != -2;) {
        if (fd < 0) {
            sched_yield();
            continue;
        }
        CHECK(send(fd, "x", 1, MSG_NOSIGNAL) == 1 || errno == EBADF);
        used_first = -1;
    }
    return unused;
}

static void closed_at_first_use(void) {
    enum { TURNS = 3000 };
    int ends[2];
    unsigned seed = 1;
    struct sockaddr_in at;
    pthread_t thread;
    int listener = listen_on(&at);
    pair_here(ends);
    IS(pthread_create(&thread, NULL, uses, NULL), 0);
    for (int i = 0; i < TURNS; i++) {
        int there = connect_to(&at), here = accept_from(listener);
        used_first = here;
        for (int spins = rand_r(&seed) % 8000; spins > 0; spins--) __asm__ volatile("");
        IS(close(here), 0);
        while (used_first != -1) sched_yield();
        IS(close(there), 0);
    }
    used_first = -2;
    CHECK(!joined(thread));
    wait_to_be_seen();
}

static const struct {
    const char *name;
    void (*run)(void);
} ALL[] = {
    {"bypassed_in_ring", bypassed_in_ring}, {"bypassed_on_tcp", bypassed_on_tcp}, {"asleep_before", asleep_before},
    {"busy_writer", busy_writer}, {"held", held}, {"asleep_for_room", asleep_for_room}, {"killed_unread", killed_unread},          {"last_wake_up", last_wake_up},       {"heirs", heirs},
    {"clean_then_reset", clean_then_reset}, {"told_once", told_once}, {"closed_sets", closed_sets}, {"fault_handlers", fault_handlers},
    {"one_set_for_two", one_set_for_two}, {"closed_at_first_use", closed_at_first_use},
    {"killed_beside_a_token", killed_beside_a_token},
};

int main(int argc, char **argv) {
    CHECK(argc == 2);
    for (size_t i = 0; i < sizeof ALL / sizeof *ALL; i++)
        if (!strcmp(argv[1], ALL[i].name)) return ALL[i].run(), 0;
    CHECK(!"such a name");
}
