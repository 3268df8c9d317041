/*
 * Reading items of a ginnel-cache out of its memory, without asking the server.
 *
 *     ginnel_cache *cache = ginnel_cache_open("127.0.0.1:11211");
 *     ginnel_cache_item item;
 *     if (cache && ginnel_cache_get(cache, "greeting", 8, &item) == 1)
 *         fwrite(item.value, 1, item.length, stdout);
 *     ginnel_cache_close(cache);
 *
 * A handle is for one thread at a time. The server may be any memcached: then every call asks it.
 * Calls that fail return -1 (or NULL) and leave words in ginnel_cache_error(). None of them blocks
 * for longer than the server may be silent, one second, at each step of an answer.
 */
#ifndef GINNEL_CACHE_H
#define GINNEL_CACHE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ginnel_cache ginnel_cache;

/* An item. The value is the library's, and valid until the next call with the same handle. */
typedef struct {
    const void *value; /* NULL: there is no such item */
    size_t length;     /* bytes of the value */
    uint64_t cas;      /* the item's unique number */
    uint32_t flags;    /* what was kept beside the value */
} ginnel_cache_item;

/* Connects to HOST:PORT, or to a unix socket by its path (with a slash in it). */
ginnel_cache *ginnel_cache_open(const char *address);

/* Closes a handle; NULL is none. */
void ginnel_cache_close(ginnel_cache *cache);

/* Reads an item: 1 and the item, 0 if there is none, -1 if it cannot be told. */
int ginnel_cache_get(ginnel_cache *cache, const void *key, size_t key_length,
                     ginnel_cache_item *item);

/* Reads `count` items: returns how many there were, or -1. items[i] is that of keys[i]. */
ptrdiff_t ginnel_cache_mget(ginnel_cache *cache, const void *const *keys, const size_t *key_lengths,
                            size_t count, ginnel_cache_item *items);

/* Stores an item for `exptime` seconds, 0 for ever: 1 if it was stored, 0 if not, -1. */
int ginnel_cache_set(ginnel_cache *cache, const void *key, size_t key_length, const void *value,
                     size_t length, uint32_t flags, int32_t exptime);

/* As set, but only where the item that is there has the unique number `cas`. */
int ginnel_cache_cas(ginnel_cache *cache, const void *key, size_t key_length, const void *value,
                     size_t length, uint32_t flags, int32_t exptime, uint64_t cas);

/* Deletes an item: 1 if there was one, 0 if not, -1. */
int ginnel_cache_delete(ginnel_cache *cache, const void *key, size_t key_length);

/* 1 if items are read out of the server's memory, 0 if it is asked for each: then
 * ginnel_cache_error() says why. */
int ginnel_cache_is_neighbour(const ginnel_cache *cache);

/* How many reads were answered out of the memory, and how many by the server. */
void ginnel_cache_counts(const ginnel_cache *cache, uint64_t *direct, uint64_t *asked);

/* Why the last call of this thread that failed did so, or, after ginnel_cache_open and
 * ginnel_cache_is_neighbour, why the handle reads nothing by itself. Valid until the thread's next
 * call of this library. Never NULL. */
const char *ginnel_cache_error(void);

#ifdef __cplusplus
}
#endif
#endif
