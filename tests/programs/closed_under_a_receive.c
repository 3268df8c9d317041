// A descriptor is closed under a thread that waits on it for bytes, and its number is another connection's at once. That one's bytes are whole and its own, and nobody hangs.
// What becomes of the call that waits is not said here: on TCP it goes on with the old connection, which a library cannot do.
#include "check.h"

enum { TURNS = 144, MESSAGES = 18, SIZE = 700, FEW = 5, OLD = 7, OTHERS = 150 };

enum call { RECV, READ, RECV_ALL, EPOLL };                  // where the thread waits
enum ending { ENDS, SPEAKS, SPEAKS_EARLY, RESETS };         // what the old connection's other end does
enum replaced { CONNECTED, COPIED, COPIED_WARM };           // how the number comes to be another's
enum entry { OF_OLD, OF_NEW, OF_STOP };                     // in the epoll set

static enum call call_of(int turn) { return turn % 4; }
static enum ending ending_of(int turn) { return turn / 4 % 4; }
static enum replaced replaced_of(int turn) { return turn / 16 % 3; }

static void some_time(unsigned *seed, int us) {
    // Often none: the moments right after one another are the ones that matter.
    if (rand_r(seed) % 3) usleep((useconds_t)(rand_r(seed) % us));
}

static void speak(int old) {
    uint8_t text[FEW];
    fill(text, 0, FEW, OLD);
    // The other end may have closed it already.
    (void)!send(old, text, FEW, MSG_NOSIGNAL);
}

static void reset(int old) {
    struct linger none = {1, 0};
    IS(setsockopt(old, SOL_SOCKET, SO_LINGER, &none, sizeof none), 0);
    close(old);
}

static int others[OTHERS];

static void use_others(bool first, int turns) {
    for (int turn = 0; turn < turns; turn++) {
        for (int i = 0; i < OTHERS; i++) {
            if (first) put_pattern(others[i], 16, i + turn);
            get_pattern(others[i], 16, i + turn);
            if (!first) put_pattern(others[i], 16, i + turn);
        }
    }
}

static void serve_others(int listener) {
    int old = accept_from(listener);
    warm_up(old, false);
    for (int i = 0; i < OTHERS; i++) others[i] = accept_from(listener);
    use_others(false, 30);
    reset(old);
    tell();
    use_others(false, 4);
    for (int i = 0; i < OTHERS; i++) {
        IS(recv(others[i], (char[1]){0}, 1, 0), 0);
        close(others[i]);
    }
}

static void serve(int listener) {
    unsigned seed = 2;
    for (int turn = 0; turn < TURNS; turn++) {
        enum ending ending = ending_of(turn);
        int old = accept_from(listener);
        warm_up(old, false);
        if (ending == SPEAKS_EARLY) some_time(&seed, 4000), speak(old);
        int fresh = accept_from(listener);
        warm_up(fresh, false);
        for (int i = 0; i < MESSAGES; i++) {
            get_pattern(fresh, SIZE, i);
            if (i == 3 && ending == SPEAKS) speak(old);
            if (i == 6) {
                if (ending == RESETS) reset(old);
                else close(old);
            }
            some_time(&seed, 600);
            put_pattern(fresh, SIZE, i + 1);
        }
        IS(recv(fresh, (char[1]){0}, 1, 0), 0);
        close(fresh);
    }
    serve_others(listener), serve_others(listener);
    exit(0);
}

static struct {
    enum call call;
    int fd, set;
    volatile pid_t thread;
    volatile bool replaced, heard, done;
} waits;

static void hear_events(void) {
    for (;;) {
        struct epoll_event events[4];
        bool replaced = waits.replaced;
        int n = epoll_wait(waits.set, events, 4, -1);
        CHECK(n > 0);
        for (int i = 0; i < n; i++) {
            if (events[i].data.u32 == OF_STOP) return;
            if (events[i].data.u32 == OF_NEW) waits.heard = true;
            else CHECK(!replaced);
        }
    }
}

static void *wait_for_bytes(void *none) {
    uint8_t got[64];
    ssize_t n = 0;
    waits.thread = gettid();
    if (waits.call == EPOLL) hear_events();
    else if (waits.call == READ) n = read(waits.fd, got, sizeof got);
    else n = recv(waits.fd, got, sizeof got, waits.call == RECV_ALL ? MSG_WAITALL : 0);
    CHECK(n >= 0 || errno == EBADF || errno == ECONNRESET);
    CHECK(n <= FEW);
    if (n > 0) same(got, 0, (size_t)n, OLD);
    waits.done = true;
    return none;
}

// Only a call that has begun is the old connection's on TCP too.
static void until_it_sleeps(void) {
    char path[64], state = 0;
    while (!waits.thread) usleep(50);
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", waits.thread);
    while (!waits.done && state != 'S') {
        FILE *stat = fopen(path, "r");
        if (!stat) continue;
        if (fscanf(stat, "%*d (%*[^)]) %c", &state) != 1) state = 0;
        fclose(stat);
    }
}

static void replace(enum replaced how, const struct sockaddr_in *at) {
    if (how == CONNECTED) {
        IS(close(waits.fd), 0);
        IS(connect_to(at), waits.fd);
    } else {
        int fresh = connect_to(at);
        if (how == COPIED_WARM) warm_up(fresh, true);
        IS(dup2(fresh, waits.fd), waits.fd);
        IS(close(fresh), 0);
    }
    waits.replaced = true;
    if (how != COPIED_WARM) warm_up(waits.fd, true);
}

static void begin(pthread_t *thread, enum call call, int fd) {
    waits.call = call, waits.fd = fd, waits.thread = 0;
    waits.replaced = waits.heard = waits.done = false;
    IS(pthread_create(thread, NULL, wait_for_bytes, NULL), 0);
    until_it_sleeps();
}

static void add(int fd, uint32_t events, uint32_t entry) {
    struct epoll_event event = {.events = events, .data.u32 = entry};
    IS(epoll_ctl(waits.set, EPOLL_CTL_ADD, fd, &event), 0);
}

// Of many connections made afterwards some take the old one's places in whatever tables there are. None of them hears of its reset.
static void use_many(const struct sockaddr_in *at, bool in_set) {
    int fd = connect_to(at);
    pthread_t thread;
    warm_up(fd, true);
    waits.set = epoll_create1(0);
    // Then whoever sleeps in a receive has to be woken in another way.
    if (in_set) add(fd, EPOLLOUT | EPOLLET, OF_OLD);
    begin(&thread, RECV, fd);
    IS(close(fd), 0);
    for (int i = 0; i < OTHERS; i++) others[i] = connect_to(at);
    IS(others[0], fd);
    use_others(true, 30);
    hear();
    joined(thread);
    use_others(true, 4);
    for (int i = 0; i < OTHERS; i++) close(others[i]);
    close(waits.set);
}

int main(void) {
    struct sockaddr_in at;
    int listener = listen_on(&at), sides[2];
    IS(socketpair(AF_UNIX, SOCK_STREAM, 0, sides), 0);
    pid_t server = fork();
    side = sides[server == 0], close(sides[server != 0]);
    if (server == 0) serve(listener);
    unsigned seed = 1;
    for (int turn = 0; turn < TURNS; turn++) {
        int stop = eventfd(0, 0), fd = connect_to(&at);
        pthread_t thread;
        enum call call = call_of(turn);
        warm_up(fd, true);
        waits.set = epoll_create1(0);
        add(stop, EPOLLIN, OF_STOP);
        if (call == EPOLL) add(fd, EPOLLIN | EPOLLET, OF_OLD);
        begin(&thread, call, fd);
        some_time(&seed, 2000);
        replace(replaced_of(turn), &at);
        bool told = call == EPOLL && rand_r(&seed) % 2;
        if (told) add(fd, EPOLLIN | EPOLLET, OF_NEW);
        for (int i = 0; i < MESSAGES; i++) {
            put_pattern(fd, SIZE, i);
            some_time(&seed, 600);
            if (i % 2) when_readable(fd);
            // What nobody takes is heard of.
            if (told && i == MESSAGES - 1) for (int64_t end = now_ms() + PATIENCE; !waits.heard; usleep(100)) CHECK(now_ms() < end);
            get_pattern(fd, SIZE, i + 1);
            if (i == 12 && call != EPOLL) joined(thread);
        }
        FAILS(recv(fd, (char[1]){0}, 1, MSG_DONTWAIT), EAGAIN);
        if (call == EPOLL) {
            CHECK(waits.heard == told);
            IS(write(stop, &(uint64_t){1}, 8), 8);
            joined(thread);
        }
        close(fd), close(waits.set), close(stop);
    }
    use_many(&at, false), use_many(&at, true);
    IS(ended(server), 0);
    say("%d descriptors closed under who waited on them", TURNS);
}
