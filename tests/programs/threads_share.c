// Four threads read one socket and four write it: words are never torn, lost or doubled.
#include "check.h"

enum { THREADS = 4, WORDS = 4000 };
static int fd;
static uint8_t seen[THREADS * WORDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *write_words(void *p) {
    for (uint64_t i = 0; i < WORDS; i++) {
        uint64_t word = (uint64_t)(long)p * WORDS + i;
        word |= ~word << 32;
        IS(send(fd, &word, 8, MSG_NOSIGNAL), 8);
    }
    return NULL;
}

static void *read_words(void *p) {
    uint64_t words[7];
    for (;;) {
        ssize_t n = (long)p % 2 ? read(fd, words, sizeof words) : recv(fd, words, 8, 0);
        CHECK(n >= 0 && n % 8 == 0);
        if (n == 0) return NULL;
        for (ssize_t i = 0; i < n / 8; i++) {
            uint32_t low = (uint32_t)words[i];
            CHECK(words[i] >> 32 == (uint32_t)~low && low < THREADS * WORDS);
            pthread_mutex_lock(&lock);
            IS(seen[low]++, 0);
            pthread_mutex_unlock(&lock);
        }
    }
}

static void run(void *(*what)(void *)) {
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) IS(pthread_create(&threads[i], NULL, what, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

static void peer(int to) {
    fd = to;
    run(write_words);
    IS(shutdown(fd, SHUT_WR), 0);
}

int main(void) {
    fd = with_peer(peer);
    run(read_words);
    for (int i = 0; i < THREADS * WORDS; i++) IS(seen[i], 1);
    peer_ends();
    say("%d words, each once", THREADS * WORDS);
}
