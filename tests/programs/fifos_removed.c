// Somebody empties Ginnel's directory while one end sleeps: what is sent to it wakes it all the same. Without the shim there is nothing to empty.
#include "check.h"
#include <ftw.h>

enum { TIMES = 12, EXCHANGES = 400 };

static void peer(int fd) {
    uint8_t text[16];
    for (int i = 0; i < EXCHANGES; i++) get_pattern(fd, sizeof text, i), put_pattern(fd, sizeof text, i);
    get_pattern(fd, sizeof text, 1000);
    put_pattern(fd, sizeof text, 1001);
    get_pattern(fd, sizeof text, 1002);
}

static int drop(const char *path, const struct stat *at, int kind, struct FTW *ftw) {
    (void)kind, (void)ftw;
    if (S_ISFIFO(at->st_mode)) unlink(path);
    return 0;
}

int main(void) {
    const char *directory = getenv("GINNEL_DIR");
    for (int time = 0; time < TIMES; time++) {
        uint8_t text[16];
        int fd = with_peer_and(peer, false);
        for (int i = 0; i < EXCHANGES; i++) put_pattern(fd, sizeof text, i), get_pattern(fd, sizeof text, i);
        // Asleep by now, perhaps for the first time since the connection moved.
        usleep(20000);
        if (directory != NULL) nftw(directory, drop, 8, FTW_PHYS);
        put_pattern(fd, sizeof text, 1000);
        get_pattern(fd, sizeof text, 1001);
        put_pattern(fd, sizeof text, 1002);
        peer_ends();
        close(fd);
    }
    say("each was woken");
}
