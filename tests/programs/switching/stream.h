// The known pseudo-random stream: each byte is a function of a key and its position, so that whoever continues a stream
// (a forked child, an exec'd image, a process that was passed the socket) needs to know the position alone.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t mix(uint64_t x) {  // the finalizer of splitmix64
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline uint64_t mix2(uint64_t a, uint64_t b) { return mix(mix(a) ^ b); }

// Sequential random numbers; `*state` may be stored and resumed.
static inline uint64_t rnd(uint64_t *state) { return mix(*state += 0x9e3779b97f4a7c15u); }
static inline uint64_t below(uint64_t *state, uint64_t n) { return n ? rnd(state) % n : 0; }
static inline int chance(uint64_t *state, uint64_t one_in) { return below(state, one_in) == 0; }

// A size between 1 and `max`, small ones as likely as large ones.
static inline size_t size_upto(uint64_t *state, size_t max) {
    if (max <= 1) return max;
    unsigned bits = 64 - (unsigned)__builtin_clzll(max);
    size_t cap = (size_t)1 << (1 + below(state, bits));
    if (cap > max) cap = max;
    return 1 + below(state, cap);
}

static inline void stream_fill(uint64_t key, uint64_t at, void *to, size_t n) {
    uint8_t *p = to;
    while (n && at % 8) *p++ = (uint8_t)(mix(key ^ (at / 8)) >> (8 * (at % 8))), at++, n--;
    for (; n >= 8; n -= 8, at += 8, p += 8) {
        uint64_t word = mix(key ^ (at / 8));
        memcpy(p, &word, 8);
    }
    while (n) *p++ = (uint8_t)(mix(key ^ (at / 8)) >> (8 * (at % 8))), at++, n--;
}

// Where in the stream, at most `window` away from `near`, eight received bytes belong: tells a lost stretch from a repeated
// one. Returns -1 when they are no part of it.
static inline int64_t stream_locate(uint64_t key, uint64_t near, const uint8_t got[8], uint64_t window) {
    uint64_t from = near > window ? near - window : 0;
    uint8_t two[16];
    for (uint64_t word = from / 8; word < (near + window) / 8; word++) {
        stream_fill(key, word * 8, two, 16);
        for (int i = 0; i < 8; i++)
            if (!memcmp(two + i, got, 8)) return (int64_t)(word * 8 + (uint64_t)i);
    }
    return -1;
}
