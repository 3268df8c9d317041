// Streams between a parent and its child: bytes both ways, an end that is shut, one that dies.

#include <ginnel.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, ginnel_errmsg()); \
            exit(1); \
        } \
    } while (0)

enum { LEN = 1 << 20 };
static const int64_t LONG = INT64_C(60000000000);

static char sent[LEN], got[LEN];

static void child(void) {
    ginnel_segment *segment;
    ginnel_stream *stream;
    MUST(ginnel_open(NULL, NULL, &segment) == 0);
    MUST(ginnel_stream_connect(segment, "talk", LONG, &stream) == 0);
    size_t len;
    static char bytes[5000];
    for (;;) {
        MUST(ginnel_stream_read(stream, bytes, sizeof bytes, &len, LONG) == 0);
        if (len == 0) break;
        MUST(ginnel_stream_write(stream, bytes, len, NULL, GINNEL_FOREVER) == 0);
    }
    ginnel_stream_close(stream);
    MUST(ginnel_stream_connect(segment, "talk", LONG, &stream) == 0);
    MUST(ginnel_stream_write(stream, "last", 4, NULL, LONG) == 0);
    pause();
    exit(0);
}

int main(void) {
    ginnel_segment *segment;
    ginnel_listener *listener;
    ginnel_stream *stream;
    pid_t other;
    size_t at = 0, back = 0, len;
    MUST(ginnel_open(NULL, NULL, &segment) == 0);
    MUST(ginnel_stream_connect(segment, "talk", 0, &stream) == -1);
    MUST(ginnel_errcode() == GINNEL_ENOTFOUND);
    MUST(ginnel_listener_open(segment, "talk", &listener) == 0);
    MUST(ginnel_listener_accept(listener, 0, &stream) == -1 && ginnel_errcode() == GINNEL_EWOULDBLOCK);
    fflush(NULL);
    if ((other = fork()) == 0) child();
    struct pollfd call = {.fd = ginnel_listener_fd(listener), .events = POLLIN};
    MUST(call.fd >= 0);
    while (ginnel_listener_accept(listener, 0, &stream) != 0) {
        MUST(ginnel_errcode() == GINNEL_EWOULDBLOCK);
        MUST(poll(&call, 1, 60000) == 1);
    }
    for (size_t i = 0; i < LEN; i++) sent[i] = (char)(i * 7 + i / 251);
    // Both ways in one thread, by the two descriptors.
    while (back < LEN) {
        struct pollfd both[] = {
            {.fd = ginnel_stream_fd(stream), .events = POLLIN},
            {.fd = at < LEN ? ginnel_stream_write_fd(stream) : -1, .events = POLLIN}};
        int moved = 0;
        if (at < LEN && ginnel_stream_write(stream, sent + at, LEN - at, &len, 0) == 0) at += len, moved = 1;
        if (ginnel_stream_read(stream, got + back, LEN - back, &len, 0) == 0) back += len, moved = 1;
        if (!moved) {
            MUST(ginnel_errcode() == GINNEL_EWOULDBLOCK);
            MUST(poll(both, 2, 60000) >= 1);
        }
    }
    MUST(memcmp(sent, got, LEN) == 0);
    MUST(ginnel_stream_shutdown(stream) == 0);
    MUST(ginnel_stream_write(stream, "x", 1, NULL, 0) == -1 && ginnel_errcode() == GINNEL_EINVALID);
    MUST(ginnel_stream_read(stream, got, LEN, &len, LONG) == 0 && len == 0);
    ginnel_stream_close(stream);

    MUST(ginnel_listener_accept(listener, LONG, &stream) == 0);
    MUST(ginnel_stream_read(stream, got, 2, &len, LONG) == 0 && len == 2);
    kill(other, SIGKILL);
    MUST(waitpid(other, NULL, 0) == other);
    MUST(ginnel_stream_read(stream, got + 2, LEN - 2, &len, LONG) == 0 && len == 2);
    MUST(memcmp(got, "last", 4) == 0);
    MUST(ginnel_stream_read(stream, got, LEN, &len, LONG) == -1 && ginnel_errcode() == GINNEL_EDIED);
    while (ginnel_stream_write(stream, sent, LEN, &len, LONG) == 0) {}
    MUST(ginnel_errcode() == GINNEL_EDIED || ginnel_errcode() == GINNEL_EENDED);
    ginnel_stream_close(stream);
    ginnel_listener_close(listener);
    MUST(ginnel_stream_connect(segment, "talk", LONG, &stream) == -1);
    MUST(ginnel_errcode() == GINNEL_ENOTFOUND);
    MUST(ginnel_stream_read(NULL, got, 1, &len, 0) == -1 && ginnel_errcode() == GINNEL_EINVALID);
    ginnel_close(segment);
    return 0;
}
