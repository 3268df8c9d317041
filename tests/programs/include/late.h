// A connection whose one end speaks past anything preloaded for long, so that the other has nobody to expect, and then through the C library.
#pragma once
#include "check.h"
#include "raw.h"
#include <sys/syscall.h>

enum { LONG = 1600, WHOLE = 5000 };

static inline void raw_exchanges(int fd, int from, int count) {
    for (int i = from; i < from + count; i++) {
        uint8_t out = pattern((size_t)i, 1), in = 0;
        IS(raw_call(SYS_write, fd, (long)&out, 1, 0, 0), 1);
        IS(raw_call(SYS_read, fd, (long)&in, 1, 0, 0), 1);
        IS(in, pattern((size_t)i, 2));
    }
}

static inline void exchanges(int fd, int from, int count) {
    for (int i = from; i < from + count; i++) {
        uint8_t out = pattern((size_t)i, 1), in = 0;
        put_all(fd, &out, 1);
        get_all(fd, &in, 1);
        IS(in, pattern((size_t)i, 2));
    }
}

static inline void answers(int fd, int from, int count) {
    for (int i = from; i < from + count; i++) {
        uint8_t in = 0, out = pattern((size_t)i, 2);
        get_all(fd, &in, 1);
        IS(in, pattern((size_t)i, 1));
        put_all(fd, &out, 1);
    }
}

static inline pid_t late_client(int listener, struct sockaddr_in *at, int *fd) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int own = connect_to(at);
        raw_exchanges(own, 0, LONG);
        exchanges(own, LONG, WHOLE - LONG);
        exit(0);
    }
    *fd = accept_from(listener);
    return child;
}
