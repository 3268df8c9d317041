// splice from a socket to a pipe and from a pipe to a socket, in the middle of other calls; sendfile to a socket; and what
// the kernel refuses stays refused.
#include "check.h"

#include <sys/sendfile.h>

static void peer(int fd) {
    put_pattern(fd, 60000, 1);
    put_pattern(fd, 5000, 2);
    get_pattern(fd, 1000, 3);
    get_pattern(fd, 60000, 1);
    get_pattern(fd, 1000, 4);
    get_pattern(fd, 100000, 5);
    warm_up(fd, true);
}

int main(void) {
    int fd = with_peer(peer), p[2], file = memfd_create("file", 0), got = 0;
    IS(pipe(p), 0);
    CHECK(fcntl(p[1], F_SETPIPE_SZ, 1 << 20) > 0);
    when_readable(fd);
    while (got < 60000) {
        ssize_t n = splice(fd, NULL, p[1], NULL, (size_t)(60000 - got), SPLICE_F_MOVE);
        CHECK(n > 0);
        got += (int)n;
    }
    get_pattern(fd, 5000, 2);
    say("from the socket");
    put_pattern(fd, 1000, 3);
    for (int put = 0; put < 60000;) {
        ssize_t n = splice(p[0], NULL, fd, NULL, (size_t)(60000 - put), SPLICE_F_MOVE);
        CHECK(n > 0);
        put += (int)n;
    }
    put_pattern(fd, 1000, 4);
    say("to the socket");
    uint8_t *text = malloc(100000);
    fill(text, 0, 100000, 5);
    IS(write(file, text, 100000), 100000);
    off_t at = 0;
    while (at < 100000) CHECK(sendfile(fd, file, &at, (size_t)(100000 - at)) > 0);
    IS(sendfile(fd, file, &at, 1000), 0);
    FAILS(sendfile(file, fd, NULL, 10), EINVAL);
    FAILS(lseek(fd, 0, SEEK_SET), ESPIPE);
    FAILS(pread(fd, text, 1, 0), ESPIPE);
    say("sendfile");
    warm_up(fd, false);
    peer_ends();
}
