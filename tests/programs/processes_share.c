// The same with processes that inherited the socket: four read it, three write it.
#include "check.h"

enum { WRITERS = 3, READERS = 4, WORDS = 4000 };

static void peer(int fd) {
    pid_t children[WRITERS];
    for (int w = 0; w < WRITERS; w++)
        if ((children[w] = fork()) == 0) {
            for (uint64_t i = 0; i < WORDS; i++) {
                uint64_t word = (uint64_t)w * WORDS + i;
                word |= ~word << 32;
                IS(send(fd, &word, 8, MSG_NOSIGNAL), 8);
            }
            exit(0);
        }
    for (int w = 0; w < WRITERS; w++) IS(ended(children[w]), 0);
    IS(shutdown(fd, SHUT_WR), 0);
}

int main(void) {
    pid_t children[READERS];
    _Atomic uint8_t *seen = mmap(NULL, WRITERS * WORDS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int fd = with_peer(peer);
    for (int r = 0; r < READERS; r++)
        if ((children[r] = fork()) == 0) {
            uint64_t words[5];
            ssize_t n;
            while ((n = r % 2 ? read(fd, words, sizeof words) : recv(fd, words, 8, 0)) > 0) {
                CHECK(n % 8 == 0);
                for (ssize_t i = 0; i < n / 8; i++) {
                    uint32_t low = (uint32_t)words[i];
                    CHECK(words[i] >> 32 == (uint32_t)~low && low < WRITERS * WORDS);
                    IS(seen[low]++, 0);
                }
            }
            IS(n, 0);
            exit(0);
        }
    for (int r = 0; r < READERS; r++) IS(ended(children[r]), 0);
    for (int i = 0; i < WRITERS * WORDS; i++) IS(seen[i], 1);
    peer_ends();
    say("%d words, each once", WRITERS * WORDS);
}
