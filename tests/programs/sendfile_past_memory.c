// sendfile of what cannot be read into any memory, a file opened with O_DIRECT, or not at a position, a terminal: all of it arrives, and what is sent before and behind it.
#include "check.h"
#include <sys/sendfile.h>
#include <termios.h>

enum { LENGTH = 128 << 10, AT_ONCE = 20480, LINE = 300 };

static void peer(int fd) {
    get_pattern(fd, 100, 1);
    get_pattern(fd, LENGTH, 2);
    get_pattern(fd, 100, 3);
    put_pattern(fd, 100, 4);
    get_pattern(fd, LINE, 5);
    get_pattern(fd, 100, 6);
    IS(recv(fd, (char[1]){0}, 1, 0), 0);
}

static int past_caches(void) {
    static uint8_t bytes[LENGTH];
    char path[] = "/var/tmp/ginnel-direct-XXXXXX";
    int file = mkstemp(path);
    CHECK(file >= 0);
    fill(bytes, 0, LENGTH, 2);
    IS(write(file, bytes, LENGTH), LENGTH);
    IS(fsync(file), 0);
    // Where the file system cannot do it, this is any file.
    int direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (direct < 0) direct = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(direct >= 0);
    unlink(path), close(file);
    return direct;
}

static int terminal(void) {
    uint8_t bytes[LINE];
    struct termios raw;
    int main_end = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(main_end >= 0 && grantpt(main_end) == 0 && unlockpt(main_end) == 0);
    int other_end = open(ptsname(main_end), O_RDWR | O_NOCTTY);
    CHECK(other_end >= 0);
    IS(tcgetattr(other_end, &raw), 0);
    cfmakeraw(&raw);
    IS(tcsetattr(other_end, TCSANOW, &raw), 0);
    fill(bytes, 0, LINE, 5);
    IS(write(main_end, bytes, LINE), LINE);
    return other_end;
}

int main(void) {
    int fd = with_peer(peer), file = past_caches(), line = terminal();
    put_pattern(fd, 100, 1);
    for (off_t at = 0; at < LENGTH;) CHECK(sendfile(fd, file, &at, AT_ONCE) > 0);
    put_pattern(fd, 100, 3);
    get_pattern(fd, 100, 4);
    for (ssize_t left = LINE, sent; left > 0; left -= sent) {
        sent = sendfile(fd, line, NULL, (size_t)left);
        if (sent < 0 && (errno == EINVAL || errno == ESPIPE)) {
            // Kernels that do not send from terminals: then by hand.
            uint8_t bytes[LINE];
            sent = read(line, bytes, (size_t)left);
            IS(send(fd, bytes, (size_t)sent, 0), sent);
        }
        CHECK(sent > 0);
    }
    put_pattern(fd, 100, 6);
    IS(shutdown(fd, SHUT_WR), 0);
    say("all of it arrived");
    peer_ends();
}
