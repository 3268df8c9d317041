// Connections between one process and many others, at random, by a seed: each end sends, receives
// and waits in whatever way there is, renames its descriptor, takes numbers that are the library's,
// closes ranges, forks, executes itself, starts programs, and is stopped, or killed at any moment.
//
//   neighbours server ADDRESS SEED                             prints its port, ends when it is told to
//   neighbours clients ADDRESS PORT SEED PROCESSES STEPS       starts so many, and ends the server
//
// What is sent follows from the seed: both ends know of each step who sends how much. Each client
// has up to four connections, each in a thread, and opens them anew once or twice. What every end
// says in the end, how much came and by which events the end of the connection was told, is the
// same on plain TCP. Whoever is not woken stops: the program says where and how it waits, and aborts.
#include "../include/check.h"
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { LEVEL, EDGE, ONCE, SETS, OUTER = SETS, ALL_SETS };
static const uint32_t HOW[SETS] = {0, EPOLLET, EPOLLONESHOT};

enum way { BLOCKING, BY_POLL, BY_SELECT, BY_LEVEL, BY_EDGE, BY_ONCE, NESTED, BRIEFLY, WAYS };
static const char *const NAMES[WAYS] = {"blocking", "poll", "select", "level", "edge", "oneshot", "nested", "briefly"};

// In milliseconds: nobody waits as long, however busy the machine is and whoever is stopped.
enum { LONGEST = 40000, AT_ONCE = 65536, MOST_CONNECTIONS = 4, OWN_NUMBERS = 3000 };

// What both ends know of a connection, and how it is found in what they say.
struct hello {
    uint32_t client, connection, epoch, steps;
};

struct end {
    int fd, sets[ALL_SETS];
    unsigned in;  // which sets have it
    struct hello hello;
    bool is_server;
    uint64_t plan, own;
    uint32_t step;
    uint64_t came;
    uint32_t told;
    uint8_t *bytes;
    // For the watch.
    atomic_llong since;
    atomic_int way;
    atomic_uint at;
};

struct step {
    enum { SERVER_SENDS, CLIENT_SENDS, BOTH_SEND } who;
    size_t size;
};

static uint64_t seed;
static char *program, **arguments;
static pthread_mutex_t numbers = PTHREAD_MUTEX_INITIALIZER;
static atomic_int alive;

enum { MOST_WATCHED = 4096 };
static _Atomic(struct end *) watched[MOST_WATCHED];

static uint64_t draw(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state * 2685821657736338717u >> 16;
}

static uint64_t below(uint64_t *state, uint64_t n) { return draw(state) % n; }

static uint64_t begin_with(uint64_t a, uint64_t b, uint64_t c) {
    uint64_t state = (seed * 0x9e3779b97f4a7c15u ^ a * 0xbf58476d1ce4e5b9u ^ b * 0x94d049bb133111ebu ^ c << 40) | 1;
    for (int n = 0; n < 8; n++) draw(&state);
    return state;
}

// Some clients are killed at any moment.
static bool is_doomed(uint32_t client) { return client % 8 == 5; }

static uint32_t connections_of(uint32_t client) {
    uint64_t state = begin_with(client, 1, 1);
    return 1 + (uint32_t)(below(&state, 2) ? 0 : below(&state, MOST_CONNECTIONS));
}

static uint32_t epochs_of(const struct hello *hello) {
    uint64_t state = begin_with(hello->client, hello->connection, 2);
    return 1 + (uint32_t)below(&state, 3);
}

static void *watch(void *none) {
    for (;; sleep_ms(200)) {
        for (int i = 0; i < MOST_WATCHED; i++) {
            struct end *end = atomic_load(&watched[i]);
            if (!end || now_ms() - atomic_load(&end->since) < LONGEST) continue;
            int unread = -1, unsent = -1;
            ioctl(end->fd, FIONREAD, &unread), ioctl(end->fd, SIOCOUTQ, &unsent);
            fprintf(stderr, "seed %llu, %s, client %u, connection %u, epoch %u: step %u is not done, way %s; descriptor %d, unread %d, unsent %d\n",
                    (unsigned long long)seed, end->is_server ? "server" : "client", end->hello.client, end->hello.connection, end->hello.epoch,
                    atomic_load(&end->at), NAMES[atomic_load(&end->way)], end->fd, unread, unsent);
            fflush(stderr);
            abort();
        }
    }
    return none;
}

static void enter(struct end *end) {
    for (int i = 0; i < MOST_WATCHED; i++) {
        struct end *none = NULL;
        if (atomic_compare_exchange_strong(&watched[i], &none, end)) return;
    }
    CHECK(!"too many");
}

static void leave(struct end *end) {
    for (int i = 0; i < MOST_WATCHED; i++) {
        struct end *own = end;
        if (atomic_compare_exchange_strong(&watched[i], &own, NULL)) return;
    }
}

static void in_sets(struct end *end, int operation) {
    for (int s = 0; s < SETS; s++) {
        if (!(end->in >> s & 1)) continue;
        struct epoll_event ev = {.events = EPOLLIN | HOW[s], .data.ptr = end};
        IS(epoll_ctl(end->sets[s], operation, end->fd, &ev), 0);
    }
}

// Most are in one set and waited for there, or in none: what is waited for in several ways is woken
// over TCP.
static void make_sets(struct end *end) {
    for (int s = 0; s < ALL_SETS; s++) CHECK((end->sets[s] = epoll_create1(EPOLL_CLOEXEC)) >= 0);
    uint64_t which = below(&end->own, 16);
    end->in = which == 0 ? 1u << OUTER | 7 : which < 5 ? 0 : 1u << which % SETS;
    if (end->in >> OUTER & 1) IS(epoll_add(end->sets[OUTER], end->sets[LEVEL], EPOLLIN), 0);
    in_sets(end, EPOLL_CTL_ADD);
}

// Waits on one of the end's sets, which has the connection for `events`. Returns what was told.
static uint32_t on_set(struct end *end, int s, uint32_t events, int ms) {
    struct epoll_event got, ev = {.events = events | HOW[s], .data.ptr = end};
    // Of an edge this makes another, of what was told once it asks again; else only what differs.
    if (s != LEVEL || events != EPOLLIN) IS(epoll_ctl(end->sets[s], EPOLL_CTL_MOD, end->fd, &ev), 0);
    int n = epoll_wait(end->sets[s], &got, 1, ms);
    CHECK(n >= 0 || errno == EINTR);
    CHECK(n < 1 || got.data.ptr == end);
    ev.events = EPOLLIN | HOW[s];
    if (s != LEVEL || events != EPOLLIN) {
        // An edge that is to come comes for what came since, too.
        if (s == LEVEL) IS(epoll_ctl(end->sets[s], EPOLL_CTL_MOD, end->fd, &ev), 0);
    }
    return n == 1 ? got.events : 0;
}

// Waits until the connection is so, as far as the kernel has to tell: spurious returns are allowed.
static uint32_t wait_for(struct end *end, enum way way, uint32_t events) {
    atomic_store(&end->way, (int)way);
    int ms = below(&end->own, 3) ? -1 : LONGEST;
    struct epoll_event got;
    struct pollfd polled = {.fd = end->fd, .events = (short)events};
    if (way == BY_SELECT && end->fd < FD_SETSIZE) {
        fd_set in, out;
        FD_ZERO(&in);
        FD_ZERO(&out);
        if (events & EPOLLIN) FD_SET(end->fd, &in);
        if (events & EPOLLOUT) FD_SET(end->fd, &out);
        CHECK(select(end->fd + 1, &in, &out, NULL, NULL) > 0 || errno == EINTR);
        return 0;
    }
    switch (way) {
        case BY_LEVEL: return on_set(end, LEVEL, events, ms);
        case BY_EDGE: return on_set(end, EDGE, events, ms);
        case BY_ONCE: return on_set(end, ONCE, events, ms);
        case BRIEFLY: return on_set(end, LEVEL, events, (int)below(&end->own, 3));
        case NESTED:
            if (events != EPOLLIN) break;
            CHECK(epoll_wait(end->sets[OUTER], &got, 1, ms) >= 0 || errno == EINTR);
            return on_set(end, LEVEL, events, 0);
        default: break;
    }
    CHECK(poll(&polled, 1, ms) >= 0 || errno == EINTR);
    return (uint32_t)polled.revents;
}

static enum way any_way(struct end *end) {
    static const int needs[WAYS] = {-1, -1, -1, LEVEL, EDGE, ONCE, OUTER, LEVEL};
    bool mixes = end->in >> OUTER & 1;
    for (;;) {
        enum way way = (enum way)below(&end->own, WAYS);
        if (needs[way] < 0 ? end->in == 0 || mixes : end->in >> needs[way] & 1) return way;
    }
}

static void pause_a_little(struct end *end) {
    uint64_t how = below(&end->own, 16);
    if (how == 0) usleep((useconds_t)below(&end->own, 20000));
    else if (how < 8) usleep((useconds_t)below(&end->own, 500));
}

// False: the other process is no more, and was to be killed.
static bool lives(struct end *end, ssize_t n) {
    bool over = n == 0 || (n < 0 && (errno == ECONNRESET || errno == EPIPE));
    CHECK(!over || (is_doomed(end->hello.client) && end->is_server));
    return !over;
}

static bool receive(struct end *end, size_t size, int salt) {
    enum way way = any_way(end);
    for (size_t at = 0; at < size;) {
        size_t most = size - at < AT_ONCE ? size - at : AT_ONCE;
        atomic_store(&end->way, (int)way);
        ssize_t n = recv(end->fd, end->bytes, most, way == BLOCKING ? 0 : MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN && way != BLOCKING) {
            wait_for(end, way, EPOLLIN);
            continue;
        }
        if (!lives(end, n)) return false;
        CHECK(n > 0);
        same(end->bytes, at, (size_t)n, salt);
        at += (size_t)n;
        if (below(&end->own, 8) == 0) way = any_way(end);
    }
    end->came += size;
    return true;
}

static bool transmit(struct end *end, size_t size, int salt) {
    enum way way = any_way(end);
    for (size_t at = 0; at < size;) {
        size_t most = size - at < AT_ONCE ? size - at : AT_ONCE;
        fill(end->bytes, at, most, salt);
        atomic_store(&end->way, (int)way);
        ssize_t n = send(end->fd, end->bytes, most, MSG_NOSIGNAL | (way == BLOCKING ? 0 : MSG_DONTWAIT));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN && way != BLOCKING) {
            wait_for(end, way, EPOLLOUT);
            continue;
        }
        if (!lives(end, n)) return false;
        CHECK(n > 0);
        at += (size_t)n;
    }
    return true;
}

static struct step next_step(struct end *end) {
    uint64_t kind = below(&end->plan, 20), size = draw(&end->plan);
    struct step step = {.who = (int)(kind < 9 ? SERVER_SENDS : kind < 18 ? CLIENT_SENDS : BOTH_SEND), .size = 1 + size % 64};
    // Both at once must not wait for each other's room.
    if (step.who == BOTH_SEND) return step;
    if (kind % 3 == 1) step.size = 1 + size % 20000;
    if (kind % 9 == 2) step.size = 1 + size % 400000;
    return step;
}

static bool perform(struct end *end, struct step step) {
    int salt = (int)(end->hello.client * 7 + end->hello.connection * 3 + end->step);
    bool sends = step.who == BOTH_SEND || (step.who == SERVER_SENDS) == end->is_server;
    pause_a_little(end);
    if (sends && !transmit(end, step.size, salt)) return false;
    return (sends && step.who != BOTH_SEND) || receive(end, step.size, salt);
}

// A number that is the library's for the other process's wake-ups, or one that is nobody's.
static int foreign_number(uint64_t *state) {
    int found[64], n = 0, domain, type;
    for (int fd = 3; fd < 20000 && n < 64; fd++) {
        socklen_t length = sizeof domain;
        if (syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0 || domain != AF_UNIX) continue;
        length = sizeof type;
        if (syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM) found[n++] = fd;
    }
    return n ? found[below(state, (uint64_t)n)] : OWN_NUMBERS;
}

static void take_a_number(struct end *end) {
    pthread_mutex_lock(&numbers);
    int number = foreign_number(&end->own), null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    CHECK(null >= 0);
    IS(dup3(null, number, O_CLOEXEC), number);
    IS(write(number, "x", 1), 1);
    IS(close(number), 0);
    IS(close(null), 0);
    pthread_mutex_unlock(&numbers);
}

static void close_the_rest(void) {
    pthread_mutex_lock(&numbers);
    IS(close_range(OWN_NUMBERS, ~0u, 0), 0);
    pthread_mutex_unlock(&numbers);
}

static void rename_descriptor(struct end *end) {
    int other = fcntl(end->fd, F_DUPFD_CLOEXEC, 3);
    CHECK(other >= 0);
    in_sets(end, EPOLL_CTL_DEL);
    IS(close(end->fd), 0);
    end->fd = other;
    in_sets(end, EPOLL_CTL_ADD);
}

static void start_a_program(void) {
    pid_t child;
    char *words[] = {"true", NULL};
    IS(posix_spawn(&child, "/bin/true", NULL, NULL, words, environ), 0);
    IS(ended(child), 0);
}

// The child takes this step, by the sets that it shares with its parent.
static bool fork_for(struct end *end, struct step step) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(LONGEST / 1000);
        _exit(perform(end, step) ? 0 : 77);
    }
    int status;
    while (waitpid(child, &status, 0) != child) CHECK(errno == EINTR);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) return false;
    if (status != 0) fprintf(stderr, "seed %llu, client %u: a child of step %u ended with %x\n", (unsigned long long)seed, end->hello.client, end->step, status);
    IS(status, 0);
    if (step.who == BOTH_SEND || (step.who == SERVER_SENDS) != end->is_server) end->came += step.size;
    return true;
}

static void execute_itself(struct end *end) {
    char words[10][32];
    char *all[12] = {program, "resumed"};
    uint64_t values[] = {seed, (uint64_t)end->fd, end->hello.client, end->hello.epoch, end->hello.steps, end->step, end->plan, end->own, end->came, end->told};
    for (int i = 0; i < 10; i++) snprintf(words[i], sizeof words[i], "%llu", (unsigned long long)values[i]), all[i + 2] = words[i];
    char *more[16];
    memcpy(more, all, sizeof all);
    more[12] = arguments[2], more[13] = arguments[3], more[14] = NULL;
    IS(fcntl(end->fd, F_SETFD, 0), 0);
    execv(program, more);
    CHECK(!"executed");
}

static bool take_step(struct end *end) {
    struct step step = next_step(end);
    atomic_store(&end->since, now_ms());
    atomic_store(&end->at, end->step);
    // All connections that a child has too are woken over TCP from then on: a process in four does
    // it, and a server with one seed in four.
    bool may_fork = end->is_server ? seed % 4 == 3 : end->hello.client % 4 == 1;
    bool forks = may_fork && below(&end->own, 100) == 0;
    if (forks) return fork_for(end, step);
    switch (below(&end->own, 120)) {
        case 0: case 1: rename_descriptor(end); break;
        case 2: case 3: take_a_number(end); break;
        case 4: close_the_rest(); break;
        case 5: start_a_program(); break;
        case 6: in_sets(end, EPOLL_CTL_DEL), in_sets(end, EPOLL_CTL_ADD); break;
        default: break;
    }
    return perform(end, step);
}

// One end ends first, as the plan has it; by which events each is told is part of the outcome.
static void finish(struct end *end) {
    bool first = below(&end->plan, 2) == end->is_server;
    enum way way = below(&end->own, 2) && end->in >> LEVEL & 1 ? BY_LEVEL : BY_POLL;
    uint32_t got = 0;
    if (first) IS(shutdown(end->fd, SHUT_WR), 0);
    atomic_store(&end->since, now_ms());
    while (!(got & EPOLLRDHUP)) got = wait_for(end, way, EPOLLIN | EPOLLRDHUP);
    end->told = end->told * 31 + got;
    IS(recv(end->fd, end->bytes, 1, 0), 0);
    if (!first) IS(shutdown(end->fd, SHUT_WR), 0);
}

static void steps_of(struct end *end) {
    make_sets(end);
    CHECK((end->bytes = malloc(AT_ONCE)) != NULL);
    atomic_store(&end->since, now_ms());
    enter(end);
    bool lasts = true;
    for (; lasts && end->step < end->hello.steps; end->step++) {
        bool alone = !end->is_server && connections_of(end->hello.client) == 1;
        if (alone && !is_doomed(end->hello.client) && end->step && below(&end->own, 400) == 0) end->own += 2, execute_itself(end);
        lasts = take_step(end);
    }
    if (lasts && !is_doomed(end->hello.client)) finish(end);
    leave(end);
    for (int s = 0; s < ALL_SETS; s++) IS(close(end->sets[s]), 0);
    IS(close(end->fd), 0);
    free(end->bytes);
}

static void begin_end(struct end *end, int fd, struct hello hello, bool is_server) {
    memset(end, 0, sizeof *end);
    end->fd = fd, end->hello = hello, end->is_server = is_server;
    end->plan = begin_with(hello.client, hello.connection, 3 + hello.epoch);
    end->own = begin_with(hello.client, hello.connection, 100 + hello.epoch * 2 + is_server);
}

static void outcome(const struct end *end) {
    if (is_doomed(end->hello.client)) return;
    say("%s of client %u, connection %u, epoch %u: %llu bytes, told %x", end->is_server ? "server" : "client", end->hello.client,
        end->hello.connection, end->hello.epoch, (unsigned long long)end->came, end->told);
}

// ---- The server.

static void *serve(void *which) {
    struct end *end = which;
    steps_of(end);
    outcome(end);
    free(end);
    atomic_fetch_sub(&alive, 1);
    return NULL;
}

// Stops its parent now and then, for a moment.
static void stop_parent(void) {
    pid_t parent = getppid();
    uint64_t state = begin_with(1, 2, 3);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == parent) {
        sleep_ms(20 + (int)below(&state, 200));
        if (getppid() == parent) kill(parent, SIGSTOP);
        sleep_ms(1 + (int)below(&state, 15));
        kill(parent, SIGCONT);
    }
    _exit(0);
}

static void more_descriptors(void) {
    struct rlimit limit;
    IS(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max < 20000 ? limit.rlim_max : 20000;
    IS(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static int server(void) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t length = sizeof at;
    CHECK(inet_pton(AF_INET, arguments[2], &at.sin_addr) == 1);
    more_descriptors();
    pid_t stopper = fork();
    if (stopper == 0) stop_parent();
    int listener = listen_at(&at, 1024);
    IS(getsockname(listener, (struct sockaddr *)&at, &length), 0);
    say("port %d.", ntohs(at.sin_port));
    pthread_t thread;
    pthread_attr_t small;
    pthread_attr_init(&small), pthread_attr_setstacksize(&small, 256 << 10), pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
    IS(pthread_create(&thread, &small, watch, NULL), 0);
    for (;;) {
        struct hello hello;
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        CHECK(fd >= 0);
        ssize_t n = recv(fd, &hello, sizeof hello, MSG_WAITALL);
        if (n != sizeof hello) { close(fd); continue; }  // killed at once
        if (hello.steps == 0) break;
        struct end *end = malloc(sizeof *end);
        CHECK(end != NULL);
        begin_end(end, fd, hello, true);
        atomic_fetch_add(&alive, 1);
        IS(pthread_create(&thread, &small, serve, end), 0);
    }
    for (int64_t until = now_ms() + LONGEST; atomic_load(&alive) > 0; sleep_ms(20)) CHECK(now_ms() < until);
    kill(stopper, SIGKILL);
    kill(getpid(), SIGCONT);
    say("served");
    return 0;
}

// ---- The clients.

static int connect_there(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(arguments[3]))};
    CHECK(inet_pton(AF_INET, arguments[2], &at.sin_addr) == 1);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    IS(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

static void epochs_from(struct end *end) {
    for (;;) {
        steps_of(end);
        outcome(end);
        struct hello hello = end->hello;
        if (++hello.epoch >= epochs_of(&hello)) return;
        int fd = connect_there();
        put_all(fd, &hello, sizeof hello);
        begin_end(end, fd, hello, false);
    }
}

static void *converse(void *which) {
    struct hello hello = *(struct hello *)which;
    struct end end;
    int fd = connect_there();
    put_all(fd, &hello, sizeof hello);
    begin_end(&end, fd, hello, false);
    epochs_from(&end);
    return NULL;
}

static void watch_here(void) {
    pthread_t thread;
    IS(pthread_create(&thread, NULL, watch, NULL), 0);
    IS(pthread_detach(thread), 0);
}

static int client(void) {
    pthread_t threads[MOST_CONNECTIONS];
    struct hello hellos[MOST_CONNECTIONS];
    uint32_t number = (uint32_t)atoi(arguments[5]), count = connections_of(number);
    watch_here();
    for (uint32_t i = 0; i < count; i++) {
        hellos[i] = (struct hello){number, i, 0, (uint32_t)atoi(arguments[6])};
        if (count > 1) IS(pthread_create(&threads[i], NULL, converse, &hellos[i]), 0);
    }
    if (count == 1) converse(&hellos[0]);
    for (uint32_t i = 0; count > 1 && i < count; i++) IS(pthread_join(threads[i], NULL), 0);
    return 0;
}

// As it was before it executed itself.
static int resumed(char **words) {
    struct end end;
    uint64_t values[10];
    for (int i = 0; i < 10; i++) values[i] = strtoull(words[2 + i], NULL, 10);
    char *more[4] = {words[0], "client", words[12], words[13]};
    arguments = more;
    seed = values[0];
    begin_end(&end, (int)values[1], (struct hello){(uint32_t)values[2], 0, (uint32_t)values[3], (uint32_t)values[4]}, false);
    end.step = (uint32_t)values[5], end.plan = values[6], end.own = values[7], end.came = values[8], end.told = (uint32_t)values[9];
    IS(fcntl(end.fd, F_SETFD, FD_CLOEXEC), 0);
    watch_here();
    epochs_from(&end);
    return 0;
}

static pid_t start_client(uint32_t number) {
    char which[16];
    snprintf(which, sizeof which, "%u", number);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char *words[] = {program, "client", arguments[2], arguments[3], arguments[4], which, arguments[6], NULL};
        execv(program, words);
        _exit(99);
    }
    return child;
}

static int clients(void) {
    uint32_t count = (uint32_t)atoi(arguments[5]), left = count;
    pid_t *all = calloc(count, sizeof *all);
    uint64_t state = begin_with(4, 5, 6);
    CHECK(all != NULL);
    more_descriptors();
    for (uint32_t i = 0; i < count; i++) all[i] = start_client(i);
    for (int rounds = 0; left > 0; rounds++) {
        uint32_t i = (uint32_t)below(&state, count);
        if (all[i]) {
            kill(all[i], SIGSTOP);
            sleep_ms(1 + (int)below(&state, 15));
            kill(all[i], SIGCONT);
            if (is_doomed(i) && below(&state, 20) == 0) kill(all[i], SIGKILL);
        }
        sleep_ms((int)below(&state, 20));
        for (uint32_t c = 0; c < count; c++) {
            int status;
            if (!all[c] || waitpid(all[c], &status, WNOHANG) != all[c]) continue;
            if (status != 0 && !(is_doomed(c) && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) {
                fprintf(stderr, "client %u ended with %x\n", c, status);
                for (uint32_t o = 0; o < count; o++) if (all[o] && o != c) kill(all[o], SIGKILL);
                return 1;
            }
            all[c] = 0, left--;
        }
    }
    struct hello end = {0};
    put_all(connect_there(), &end, sizeof end);
    say("all clients ended");
    return 0;
}

int main(int argc, char **argv) {
    static char self[PATH_MAX];
    CHECK(argc > 3 && readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    program = self, arguments = argv;
    if (!strcmp(argv[1], "resumed")) return resumed(argv);
    seed = strtoull(argv[!strcmp(argv[1], "server") ? 3 : 4], NULL, 10);
    return !strcmp(argv[1], "server") ? server() : !strcmp(argv[1], "clients") ? clients() : client();
}
