// Three streams, one after the other, each far longer than any ring: all of it arrives in order while the rings grow. Under the shim two of them come to rings of more than 1 MiB, the first
// although its ring is never full for the first half, as each piece is read before the next is sent. The third does not, unless the others have been idle for a second by then. In a small
// segment (GINNEL_SIZE) none does.
#include "check.h"

enum { STREAMS = 3, PIECE = 64 << 10 };
static const uint64_t LENGTH = 300ull << 20, ORDINARY = 1 << 20;

// Sends up to `end`, or until nothing more goes; returns how much that was.
static uint64_t fill_up(int fd, uint64_t *at, uint64_t end, uint64_t *words) {
    uint64_t before = *at;
    while (*at < end) {
        size_t n = end - *at < PIECE ? end - *at : PIECE;
        for (size_t i = 0; i <= n / 8; i++) words[i] = *at / 8 + i;
        ssize_t put = send(fd, (char *)words + *at % 8, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (put < 0) {
            CHECK(errno == EAGAIN);
            break;
        }
        *at += (uint64_t)put;
    }
    return *at - before;
}

static void take_all(int fd, uint64_t *at, uint64_t end, uint64_t *words) {
    while (*at < end) {
        size_t within = *at % 8;
        ssize_t got = recv(fd, (char *)words + within, PIECE, 0);
        CHECK(got > 0);
        for (size_t i = within != 0; i < (within + (size_t)got) / 8; i++) IS(words[i], *at / 8 + i);
        *at += (uint64_t)got;
    }
    IS(*at, end);
}

// The `number`th stream of a process. Returns how much went into it at a time, once its ring was as large as it will be; into the first (0), before it could be found full.
static uint64_t stream(int number) {
    static uint64_t words[PIECE / 8 + 2];
    int pair[2];
    uint64_t sent = 0, taken = 0, most = 0;
    pair_here(pair);
    while (taken < LENGTH) {
        bool one = number == 0 && sent < LENGTH / 2;
        uint64_t n = fill_up(pair[0], &sent, one ? sent + PIECE : LENGTH, words);
        // Not the kernel's buffers of the beginning.
        if (!one && sent > LENGTH / 2 && sent < LENGTH && !(number == 0 && most)) most = n > most ? n : most;
        take_all(pair[1], &taken, sent, words);
    }
    fprintf(stderr, "stream %d: %llu bytes at a time\n", number, (unsigned long long)most);
    return most;
}

static bool shimmed, small;

// As many bytes at a time as only a large ring holds?
static void is_large(uint64_t most, bool wanted) {
    if (shimmed) IS(most > 2 * ORDINARY, wanted && !small);
}

int main(void) {
    shimmed = getenv("LD_PRELOAD") != NULL && getenv("GINNEL_CHAOS") == NULL;
    small = getenv("GINNEL_SIZE") != NULL;
    // Large rings of the dead are nobody's at once.
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int i = 0; i < 2; i++) is_large(stream(i), true);
        raise(SIGKILL);
    }
    int status;
    IS(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    int64_t begin = now_ms();
    for (int i = 0; i < STREAMS; i++) {
        uint64_t most = stream(i);
        if (i < 2 || now_ms() - begin < 900) is_large(most, i < 2);
    }
    say("every byte in its place");
}
