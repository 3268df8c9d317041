// Both ends write without pause and read what comes, each in one thread that never waits in a call for the one or the other: all of it arrives in order, either way. Under the shim
// the two have no quiet moment together, and move into rings all the same.
#include "check.h"

// Long enough for a busy machine to let both ends run at the right moments.
enum { PIECE = 64 << 10, TIME = 2500 };

// What word `at` of a direction holds.
static uint64_t word(uint64_t at, int salt) { return at * 0x9e3779b97f4a7c15u + (uint64_t)salt; }

static void tell_count(uint64_t count) { IS(write(side, &count, sizeof count), sizeof count); }

static uint64_t hear_count(void) {
    uint64_t count;
    IS(read(side, &count, sizeof count), sizeof count);
    return count;
}

static void exchange(int fd, int own, int theirs) {
    static uint64_t out[PIECE / 8 + 1], in[PIECE / 8 + 1];
    uint64_t sent = 0, taken = 0;
    IS(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
    int64_t until = now_ms() + TIME;
    for (bool writes = true, ended = false; writes || !ended;) {
        bool moved = false;
        if (writes) {
            for (size_t i = 0; i <= PIECE / 8; i++) out[i] = word(sent / 8 + i, own);
            ssize_t put = send(fd, (char *)out + sent % 8, PIECE, MSG_NOSIGNAL);
            CHECK(put > 0 || errno == EAGAIN);
            if (put > 0) sent += (uint64_t)put, moved = true;
            writes = now_ms() < until;
            if (!writes) {
                IS(shutdown(fd, SHUT_WR), 0);
                tell_count(sent);
            }
        }
        if (!ended) {
            size_t within = taken % 8;
            ssize_t got = recv(fd, (char *)in + within, PIECE, 0);
            CHECK(got >= 0 || errno == EAGAIN);
            ended = got == 0;
            if (got > 0) {
                for (size_t i = within != 0; i < (within + (size_t)got) / 8; i++) CHECK(in[i] == word(taken / 8 + i, theirs));
                taken += (uint64_t)got;
                // The word that is not whole yet.
                in[0] = in[(within + (size_t)got) / 8];
                moved = true;
            }
        }
        if (!moved) {
            struct pollfd p = {fd, (short)((ended ? 0 : POLLIN) | (writes ? POLLOUT : 0)), 0};
            IS(poll(&p, 1, PATIENCE), 1);
        }
    }
    IS(taken, hear_count());
}

static void peer(int fd) { exchange(fd, 2, 1); }

int main(void) {
    int fd = with_peer_and(peer, false);
    exchange(fd, 1, 2);
    say("every byte in its place, both ways");
    peer_ends();
}
