// A thread that is cancelled in a send, full or amid a stream, leaves nothing behind: what it sent arrives up to some byte, other connections work, and nothing waits for it.
#include "check.h"
#include <sys/sendfile.h>

enum { TURNS = 60, SIZE = 150000, PERIOD = 1000003, MESSAGE = 700, FEW = 12 };

static void with_send(void);
static void with_writev(void);
static void with_sendfile(void);

static void (*const calls[])(void) = {with_send, with_writev, with_sendfile};
static uint8_t stream[PERIOD + SIZE];  // from any byte on, the next SIZE ones
static int fd, file;
static volatile uint64_t sent;

// What the other end has seen of a turn.
struct seen {
    uint64_t bytes;
    int error;
};

static void with_send(void) {
    ssize_t n = send(fd, stream + sent % PERIOD, SIZE, MSG_NOSIGNAL);
    CHECK(n > 0);
    sent += (uint64_t)n;
}

static void with_writev(void) {
    uint8_t *from = stream + sent % PERIOD;
    struct iovec pieces[] = {{from, 1000}, {from + 1000, SIZE - 3000}, {from + SIZE - 2000, 2000}};
    ssize_t n = writev(fd, pieces, 3);
    CHECK(n > 0);
    sent += (uint64_t)n;
}

static void with_sendfile(void) {
    off_t at = (off_t)(sent % PERIOD);
    ssize_t n = sendfile(fd, file, &at, SIZE);
    CHECK(n > 0);
    sent += (uint64_t)n;
    // It is no place to be cancelled at, to the C library.
    pthread_testcancel();
}

static void *sends(void *call) {
    for (;;) (*(void (*const *)(void))call)();
    return NULL;
}

static bool stays_full(int turn) { return turn / 3 % 2; }

// To its end, or to a reset.
static struct seen drain(int from) {
    static uint8_t part[SIZE];
    struct seen seen = {0};
    ssize_t n;
    while ((n = recv(from, part, sizeof part, 0)) > 0) {
        CHECK(memcmp(part, stream + seen.bytes % PERIOD, (size_t)n) == 0);
        seen.bytes += (uint64_t)n;
    }
    if (n < 0) seen.error = errno;
    return seen;
}

static void receives(int beside, const struct sockaddr_in *at) {
    for (int turn = 0; turn < TURNS; turn++) {
        int from = connect_to(at);
        warm_up(from, true);
        tell();
        if (stays_full(turn)) {
            hear();
            get_pattern(beside, MESSAGE, turn), put_pattern(beside, MESSAGE, turn);
            // The other direction is untouched, unless there was a reset.
            uint8_t text[MESSAGE];
            fill(text, 0, MESSAGE, turn);
            (void)!send(from, text, MESSAGE, MSG_NOSIGNAL);
            hear();
        }
        struct seen seen = drain(from);
        close(from);
        IS(write(side, &seen, sizeof seen), sizeof seen);
        if (!stays_full(turn)) get_pattern(beside, MESSAGE, turn), put_pattern(beside, MESSAGE, turn);
    }
    IS(recv(beside, (char[1]){0}, 1, 0), 0);
    exit(0);
}

static void use_beside(int beside, int turn) { put_pattern(beside, MESSAGE, turn), get_pattern(beside, MESSAGE, turn); }

static void until_full(void) {
    for (uint64_t before = ~0ull; before != sent;) before = sent, sleep_ms(5);
}

static void join(pthread_t thread) { CHECK(joined(thread) == PTHREAD_CANCELED); }

static void answer_comes(int turn) {
    uint8_t text[MESSAGE];
    ssize_t n = recv(fd, text, sizeof text, MSG_WAITALL);
    CHECK(n == MESSAGE || (n < 0 && errno == ECONNRESET));
    if (n > 0) same(text, 0, MESSAGE, turn);
}

int main(void) {
    struct sockaddr_in at;
    int listener = listen_on(&at), sides[2], before = 0;
    unsigned seed = 1;
    for (size_t i = 0; i < sizeof stream; i++) stream[i] = pattern(i % PERIOD, 1);
    FILE *kept = tmpfile();
    CHECK(kept && fwrite(stream, sizeof stream, 1, kept) == 1 && fflush(kept) == 0);
    file = fileno(kept);
    IS(socketpair(AF_UNIX, SOCK_STREAM, 0, sides), 0);
    other = fork();
    side = sides[other == 0], close(sides[other != 0]);
    if (other == 0) {
        close(listener);
        int beside = connect_to(&at);
        warm_up(beside, true);
        receives(beside, &at);
    }
    int beside = accept_from(listener);
    warm_up(beside, false);
    for (int turn = 0; turn < TURNS; turn++) {
        bool full = stays_full(turn);
        void (*const *call)(void) = &calls[turn % 3];
        pthread_t thread;
        struct seen seen;
        if (turn == TURNS / 4) before = descriptors();
        fd = accept_from(listener), sent = 0;
        warm_up(fd, false);
        hear();
        IS(pthread_create(&thread, NULL, sends, (void *)call), 0);
        if (full) until_full();
        else usleep((useconds_t)(rand_r(&seed) % 6000));
        IS(pthread_cancel(thread), 0);
        // On TCP the thread stays in sendfile until all of it is sent.
        bool stays = *call == with_sendfile;
        if (!full || !stays) join(thread);
        if (full) {
            tell();
            use_beside(beside, turn);
            answer_comes(turn);
            tell();
            if (stays) join(thread);
        }
        int64_t begin = now_ms();
        if (rand_r(&seed) % 2) CHECK(shutdown(fd, SHUT_WR) == 0 || errno == ENOTCONN);
        close(fd);
        CHECK(now_ms() - begin < PATIENCE / 2);
        IS(recv(side, &seen, sizeof seen, MSG_WAITALL), sizeof seen);
        CHECK(seen.bytes <= sent + SIZE);
        CHECK(seen.error == 0 ? seen.bytes >= sent : seen.error == ECONNRESET);
        if (!full) use_beside(beside, turn);
    }
    int more = descriptors() - before;
    IS(more > FEW ? more : 0, 0);
    close(beside);
    IS(ended(other), 0);
    say("%d sends left", TURNS);
}
