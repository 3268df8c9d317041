// Threads that sleep on connections in every way there is, several at a time on one set or socket,
// while others send, change sets, look without waiting and open connections anew. In each round
// every connection gets noise, and then bytes that end the round; whoever sleeps on it is to be
// told of those, as by the kernel:
//   - a set that tells as long as there is something: each of its sleepers, by one connection;
//   - one that tells edges, or once: somebody, of each connection;
//   - poll and select: each; a receive: one byte for each.
// Nobody who is told of a connection takes the last bytes that others are to be told of.
//
//   sleepers SEED ROUNDS
//
// Without the shim it holds on every kernel. A sleeper that is forgotten stops the round: the
// program says in which, and how everybody slept, and aborts.
#include "../include/check.h"
#include <stdatomic.h>
#include <sys/syscall.h>

enum { CONNECTIONS = 4, SETS = 5, THREADS = 5, CHANGERS = 2, OUTER = 4, NOISE = 'n', LAST = 'L', RELEASE = 1000, INNER = 2000 };

// How each set has its connections. The last has the first and the second within it.
static const uint32_t HOW[SETS] = {0, EPOLLET, EPOLLONESHOT, 0, 0};

static struct {
    int here, there;
    unsigned sets;  // which sets have it
    bool alone;     // only receives sleep on it
    pthread_mutex_t taking;
    atomic_int promised;          // receives that sleep on it and are to get a last byte
    enum { AS_EVER, TAKEN_OUT, UNWISHED } kept[SETS];  // until the last bytes have come
    atomic_bool told[SETS];       // somebody heard by this set that its last bytes are there
} connections[CONNECTIONS];

static int sets[SETS], release;
static pthread_mutex_t changing[SETS];
static atomic_bool over[SETS];  // no sleeper of the set is needed any more
static uint32_t inner_how;
static bool within[2];  // the outer set has these

static struct {
    enum { ON_SET, BY_POLL, BY_SELECT, BY_RECEIVE, IDLE } way;
    int target;
    unsigned of;  // connections that it sleeps on
    atomic_int done;
    atomic_llong since;
    uint64_t seed;
} threads[THREADS + CHANGERS];

static atomic_bool quiet;  // changes are to end
static atomic_int rounds;
static pthread_barrier_t begin, end;
static uint64_t seed;
static int all;

static uint64_t draw(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state * 2685821657736338717u >> 16;
}

static uint64_t below(uint64_t *state, uint64_t n) { return draw(state) % n; }

static void forgotten(const char *what, int which) {
    fprintf(stderr, "seed %llu, round %d: %s %d was not told\n", (unsigned long long)seed, atomic_load(&rounds), what, which);
    for (int i = 0; i < THREADS; i++) {
        fprintf(stderr, "thread %d: way %d, target %d, connections %x, done %d, asleep for %lld ms\n", i, threads[i].way, threads[i].target,
                threads[i].of, atomic_load(&threads[i].done), (long long)(now_ms() - atomic_load(&threads[i].since)));
    }
    for (int i = 0; i < CONNECTIONS; i++) {
        int unread = -1;
        ioctl(connections[i].here, FIONREAD, &unread);
        fprintf(stderr, "connection %d: descriptor %d, sets %x, alone %d, unread %d, told", i, connections[i].here, connections[i].sets,
                connections[i].alone, unread);
        for (int s = 0; s < SETS; s++) fprintf(stderr, " %d", atomic_load(&connections[i].told[s]));
        fprintf(stderr, "\n");
    }
    fflush(stderr);
    abort();
}

// Takes the noise of a connection. True: its last bytes are there.
static bool last_there(int c) {
    char byte;
    bool last = false;
    pthread_mutex_lock(&connections[c].taking);
    while (recv(connections[c].here, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1 && !(last = byte == LAST)) {
        // A receive that sleeps may have taken the noise meanwhile: what is left is the last.
        if (recv(connections[c].here, &byte, 1, MSG_DONTWAIT) == 1 && byte == LAST) put_all(connections[c].there, &byte, 1);
    }
    pthread_mutex_unlock(&connections[c].taking);
    return last;
}

static void arm(int s, int c, int operation) {
    struct epoll_event ev = {.events = EPOLLIN | HOW[s] | (HOW[s] == EPOLLET && c % 2 ? EPOLLOUT : 0), .data.fd = c};
    // Whoever changes sets may have it out at this moment.
    if (epoll_ctl(sets[s], operation, connections[c].here, &ev) != 0) CHECK(operation == EPOLL_CTL_MOD && errno == ENOENT);
}

static bool heard(int s, const struct epoll_event *got, int n);

// Looks into a set without waiting. True: something of the last was there.
static bool look(int s) {
    struct epoll_event got[3];
    bool any = false;
    int n;
    do {
        CHECK((n = epoll_wait(sets[s], got, 3, 0)) >= 0);
        if (heard(s, got, n)) any = true;
        // What tells of edges, or once, is asked until there is no more; any other would go on for ever.
    } while (n > 0 && !(any && HOW[s] == 0) && !atomic_load(&over[s]));
    return any;
}

static bool heard(int s, const struct epoll_event *got, int n) {
    bool any = false;
    for (int i = 0; i < n; i++) {
        int of = got[i].data.fd;
        if (of == RELEASE) continue;
        if (of >= INNER) {
            if (look(of - INNER)) any = true;
            if (inner_how & EPOLLONESHOT) {
                struct epoll_event ev = {.events = EPOLLIN | inner_how, .data.fd = of};
                if (epoll_ctl(sets[s], EPOLL_CTL_MOD, sets[of - INNER], &ev) != 0) CHECK(errno == ENOENT);
            }
        } else if (last_there(of)) {
            atomic_store(&connections[of].told[s], any = true);
        } else if (HOW[s] & EPOLLONESHOT) {
            arm(s, of, EPOLL_CTL_MOD);
        }
    }
    return any;
}

static bool needs_all(int s) { return HOW[s] != 0; }

static void on_set(int i) {
    int s = threads[i].target;
    struct epoll_event got[4];
    uint64_t *state = &threads[i].seed;
    // Edges are told to one: the others go on until all is told.
    for (bool any = false; !atomic_load(&over[s]) && !(any && !needs_all(s));) {
        int most = 1 + (int)below(state, 4), n;
        atomic_store(&threads[i].since, now_ms());
        if (below(state, 8) == 0) n = epoll_wait(sets[s], got, most, (int)below(state, 3));
        else if (below(state, 3) == 0) n = (int)syscall(SYS_epoll_pwait2, sets[s], got, most, NULL, NULL, 8);
        else n = epoll_wait(sets[s], got, most, -1);
        CHECK(n >= 0 || errno == EINTR);
        if (heard(s, got, n)) any = true;
    }
}

static bool any_last(unsigned of) {
    bool any = false;
    for (int c = 0; c < CONNECTIONS; c++) any |= of >> c & 1 && last_there(c);
    return any;
}

static void by_poll(int i) {
    do {
        struct pollfd polled[CONNECTIONS];
        int n = 0;
        for (int c = 0; c < CONNECTIONS; c++) {
            if (threads[i].of >> c & 1) polled[n++] = (struct pollfd){.fd = connections[c].here, .events = POLLIN};
        }
        atomic_store(&threads[i].since, now_ms());
        CHECK(poll(polled, (nfds_t)n, -1) > 0);
    } while (!any_last(threads[i].of));
}

static void by_select(int i) {
    do {
        fd_set read;
        FD_ZERO(&read);
        for (int c = 0; c < CONNECTIONS; c++) {
            if (threads[i].of >> c & 1) FD_SET(connections[c].here, &read);
        }
        atomic_store(&threads[i].since, now_ms());
        CHECK(select(FD_SETSIZE, &read, NULL, NULL, NULL) > 0);
    } while (!any_last(threads[i].of));
}

static void by_receive(int i) {
    char byte = 0;
    while (byte != LAST) {
        atomic_store(&threads[i].since, now_ms());
        IS(recv(connections[threads[i].target].here, &byte, 1, 0), 1);
    }
}

static void *sleeper(void *which) {
    int i = (int)(intptr_t)which;
    for (int round = 0; round < all; round++) {
        pthread_barrier_wait(&begin);
        if (threads[i].way == ON_SET) on_set(i);
        if (threads[i].way == BY_POLL) by_poll(i);
        if (threads[i].way == BY_SELECT) by_select(i);
        if (threads[i].way == BY_RECEIVE) by_receive(i);
        atomic_store(&threads[i].done, 1);
        pthread_barrier_wait(&end);
    }
    return which;
}

static void change_inner(uint64_t *state) {
    int s = (int)below(state, 2);
    struct epoll_event ev = {.events = EPOLLIN | inner_how, .data.fd = INNER + s};
    if (!within[s]) return;
    pthread_mutex_lock(&changing[OUTER]);
    if (below(state, 2)) {
        IS(epoll_ctl(sets[OUTER], EPOLL_CTL_DEL, sets[s], NULL), 0);
        IS(epoll_ctl(sets[OUTER], EPOLL_CTL_ADD, sets[s], &ev), 0);
    } else {
        IS(epoll_ctl(sets[OUTER], EPOLL_CTL_MOD, sets[s], &ev), 0);
    }
    pthread_mutex_unlock(&changing[OUTER]);
}

// One change of a connection's registration, which is as before after it.
static void change(int s, int c, uint64_t *state) {
    struct epoll_event none = {.events = 0, .data.fd = c};
    if (connections[c].kept[s]) return;
    pthread_mutex_lock(&changing[s]);
    switch (below(state, 4)) {
        case 0:
            IS(epoll_ctl(sets[s], EPOLL_CTL_DEL, connections[c].here, NULL), 0);
            arm(s, c, EPOLL_CTL_ADD);
            break;
        case 1:
            IS(epoll_ctl(sets[s], EPOLL_CTL_MOD, connections[c].here, &none), 0);
            arm(s, c, EPOLL_CTL_MOD);
            break;
        case 2: {
            int more = dup(connections[c].here);
            if (below(state, 8) == 0) {
                IS(epoll_add(sets[s], more, 0), 0);
                IS(epoll_ctl(sets[s], EPOLL_CTL_DEL, more, NULL), 0);
            }
            close(more);
            break;
        }
        default: arm(s, c, EPOLL_CTL_MOD);
    }
    pthread_mutex_unlock(&changing[s]);
}

static void pause_a_little(uint64_t *state) {
    uint64_t how = below(state, 16);
    if (how == 0) usleep((useconds_t)below(state, 300));
    else if (how < 8) for (volatile uint64_t n = below(state, 4000); n > 0; n--) {}
}

static void *changer(void *which) {
    uint64_t *state = &threads[(intptr_t)which].seed;
    for (int round = 0; round < all; round++) {
        pthread_barrier_wait(&begin);
        for (int n = (int)below(state, 12); n > 0 && !atomic_load(&quiet); n--) {
            int c = (int)below(state, CONNECTIONS), s = (int)below(state, SETS);
            pause_a_little(state);
            if (connections[c].sets >> s & 1) change(s, c, state);
            else if (s == OUTER) change_inner(state);
            else if (s != OUTER && below(state, 4) == 0) look(s);
            else if (below(state, 4) == 0) polled(connections[c].here, POLLIN, 0);
        }
        pthread_barrier_wait(&end);
    }
    return which;
}

static void open_anew(int c, uint64_t *state) {
    int ends[2];
    if (connections[c].here) close(connections[c].here), close(connections[c].there);
    pair_here(ends);
    connections[c].here = ends[0], connections[c].there = ends[1];
    connections[c].alone = below(state, 4) == 0;
    // Most are in one set, which is where each is woken as the only one.
    connections[c].sets = connections[c].alone ? 0 : 1u << below(state, SETS);
    if (!connections[c].alone && below(state, 4) == 0) connections[c].sets |= 1u << below(state, SETS);
    for (int s = 0; s < SETS; s++) {
        if (connections[c].sets >> s & 1) arm(s, c, EPOLL_CTL_ADD);
    }
}

static unsigned of_set(int s) {
    unsigned of = 0;
    for (int c = 0; c < CONNECTIONS; c++) of |= (connections[c].sets >> s & 1u) << c;
    return of;
}

// Some come into their sets, or are wished for there, only when their last bytes are there.
static void keep_some(uint64_t *state) {
    for (int c = 0; c < CONNECTIONS; c++) {
        for (int s = 0; s < SETS; s++) {
            struct epoll_event none = {.events = 0, .data.fd = c};
            connections[c].kept[s] = AS_EVER;
            if (!(connections[c].sets >> s & 1) || below(state, 3)) continue;
            connections[c].kept[s] = below(state, 2) ? TAKEN_OUT : UNWISHED;
            IS(epoll_ctl(sets[s], connections[c].kept[s] == TAKEN_OUT ? EPOLL_CTL_DEL : EPOLL_CTL_MOD, connections[c].here, &none), 0);
        }
    }
}

static void give_back(uint64_t *state) {
    for (int c = 0; c < CONNECTIONS; c++) {
        for (int s = 0; s < SETS; s++) {
            if (connections[c].kept[s] == AS_EVER) continue;
            pause_a_little(state);
            arm(s, c, connections[c].kept[s] == TAKEN_OUT ? EPOLL_CTL_ADD : EPOLL_CTL_MOD);
        }
    }
}

static void give_work(int i, uint64_t *state) {
    int c = (int)below(state, CONNECTIONS), s = (int)below(state, SETS);
    threads[i].way = IDLE, threads[i].of = 0, threads[i].target = 0;
    threads[i].done = 0;
    bool others = below(state, 16) == 0;
    if (connections[c].alone || others) {
        threads[i].of = 1u << c, threads[i].target = c;
        threads[i].way = BY_RECEIVE;
        if (below(state, 3) == 0) {
            threads[i].way = below(state, 2) ? BY_POLL : BY_SELECT;
            if (others) threads[i].of |= 1u << below(state, CONNECTIONS);
        } else {
            atomic_fetch_add(&connections[c].promised, 1);
        }
        return;
    }
    // Several on one set, most of the time.
    if (below(state, 2) && i > 0 && threads[i - 1].way == ON_SET) s = threads[i - 1].target;
    threads[i].of = of_set(s);
    threads[i].target = s;
    // (Of the set within the outer one that tells edges, the outer one need not be told: another took them.)
    if (threads[i].of || (s == OUTER && within[0] && of_set(0))) threads[i].way = ON_SET;
}

static void put_noise(uint64_t *state) {
    char noise[64];
    memset(noise, NOISE, sizeof noise);
    for (int n = (int)below(state, 3 * CONNECTIONS); n > 0; n--) {
        pause_a_little(state);
        int fd = connections[below(state, CONNECTIONS)].there;
        CHECK(send(fd, noise, 1 + below(state, below(state, 4) ? 2 : sizeof noise), MSG_DONTWAIT) > 0 || errno == EAGAIN);
    }
}

static void until_told(int s, int64_t until) {
    bool waits = false;
    for (int i = 0; i < THREADS; i++) waits |= threads[i].way == ON_SET && threads[i].target == s;
    for (int c = 0; waits && c < CONNECTIONS; c++) {
        while (needs_all(s) && connections[c].sets >> s & 1 && !atomic_load(&connections[c].told[s])) {
            if (now_ms() > until) forgotten("a set's connection", c);
            sched_yield();
        }
    }
}

static void drain(int c) {
    char bytes[256];
    // All that was sent has come: the ends are in one process.
    while (recv(connections[c].here, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {}
}

static void one_round(uint64_t *state) {
    uint64_t one = 1;
    for (int c = 0; c < CONNECTIONS; c++) {
        if (below(state, 4) == 0) open_anew(c, state);
        atomic_store(&connections[c].promised, 0);
        for (int s = 0; s < SETS; s++) {
            atomic_store(&connections[c].told[s], false);
            // One that was told of once is to be told of again.
            if (connections[c].sets >> s & 1 && HOW[s]) arm(s, c, EPOLL_CTL_MOD);
        }
    }
    for (int s = 0; s < 2; s++) {
        struct epoll_event ev = {.events = EPOLLIN | inner_how, .data.fd = INNER + s};
        if (within[s]) IS(epoll_ctl(sets[OUTER], EPOLL_CTL_MOD, sets[s], &ev), 0);
    }
    for (int s = 0; s < SETS; s++) atomic_store(&over[s], false);
    keep_some(state);
    for (int i = 0; i < THREADS; i++) give_work(i, state);
    atomic_store(&quiet, false);
    pthread_barrier_wait(&begin);
    if (below(state, 4) == 0) usleep((useconds_t)below(state, 2000));
    put_noise(state);
    for (int c = 0; c < CONNECTIONS; c++) {
        char last[THREADS + 1];
        memset(last, LAST, sizeof last);
        pause_a_little(state);
        put_all(connections[c].there, last, (size_t)atomic_load(&connections[c].promised) + 1);
    }
    give_back(state);
    int64_t until = now_ms() + PATIENCE;
    for (int i = 0; i < THREADS; i++) {
        bool on_all = threads[i].way == ON_SET && (needs_all(threads[i].target));
        while (!on_all && !atomic_load(&threads[i].done)) {
            if (now_ms() > until) forgotten("thread", i);
            sched_yield();
        }
    }
    for (int s = 0; s < SETS; s++) until_told(s, until);
    for (int s = 0; s < SETS; s++) atomic_store(&over[s], true);
    IS(write(release, &one, sizeof one), sizeof one);
    atomic_store(&quiet, true);
    pthread_barrier_wait(&end);
    IS(read(release, &one, sizeof one), sizeof one);
    for (int c = 0; c < CONNECTIONS; c++) drain(c);
}

int main(int argc, char **argv) {
    pthread_t ids[THREADS + CHANGERS];
    CHECK(argc > 2);
    seed = strtoull(argv[1], NULL, 10), all = atoi(argv[2]);
    uint64_t state = seed * 0x9e3779b97f4a7c15u | 1;
    for (int n = 0; n < 8; n++) draw(&state);
    CHECK((release = eventfd(0, EFD_NONBLOCK)) >= 0);
    for (int s = 0; s < SETS; s++) {
        struct epoll_event ev = {.events = EPOLLIN, .data.fd = RELEASE};
        CHECK((sets[s] = epoll_create1(0)) >= 0);
        IS(epoll_ctl(sets[s], EPOLL_CTL_ADD, release, &ev), 0);
        pthread_mutex_init(&changing[s], NULL);
    }
    inner_how = below(&state, 2) ? EPOLLONESHOT : 0;
    for (int s = 0; s < 2; s++) {
        struct epoll_event ev = {.events = EPOLLIN | inner_how, .data.fd = INNER + s};
        within[s] = below(&state, 2);
        if (within[s]) IS(epoll_ctl(sets[OUTER], EPOLL_CTL_ADD, sets[s], &ev), 0);
    }
    for (int c = 0; c < CONNECTIONS; c++) pthread_mutex_init(&connections[c].taking, NULL), open_anew(c, &state);
    pthread_barrier_init(&begin, NULL, THREADS + CHANGERS + 1), pthread_barrier_init(&end, NULL, THREADS + CHANGERS + 1);
    for (int i = 0; i < THREADS + CHANGERS; i++) {
        threads[i].seed = draw(&state) | 1;
        IS(pthread_create(&ids[i], NULL, i < THREADS ? sleeper : changer, (void *)(intptr_t)i), 0);
    }
    for (int round = 0; round < all; round++) atomic_store(&rounds, round), one_round(&state);
    for (int i = 0; i < THREADS + CHANGERS; i++) joined(ids[i]);
    say("everybody was told");
}
