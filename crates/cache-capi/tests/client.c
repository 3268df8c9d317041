/* A C program that uses the library as the header says; prints what it saw. */
#include "ginnel-cache.h"
#include <stdio.h>
#include <string.h>

#define CHECK(yes) \
    do { \
        if (!(yes)) { \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #yes, ginnel_cache_error()); \
            return 1; \
        } \
    } while (0)

int main(int argc, char **argv)
{
    ginnel_cache *cache = ginnel_cache_open(argc > 1 ? argv[1] : "");
    CHECK(cache);
    CHECK(ginnel_cache_is_neighbour(cache));
    ginnel_cache_item item;
    CHECK(ginnel_cache_get(cache, "none", 4, &item) == 0 && !item.value);
    CHECK(ginnel_cache_set(cache, "key", 3, "value", 5, 9, 0) == 1);
    CHECK(ginnel_cache_get(cache, "key", 3, &item) == 1);
    CHECK(item.length == 5 && !memcmp(item.value, "value", 5) && item.flags == 9);
    CHECK(ginnel_cache_cas(cache, "key", 3, "other", 5, 0, 0, item.cas + 9) == 0);
    CHECK(ginnel_cache_cas(cache, "key", 3, "", 0, 0, 0, item.cas) == 1);
    const void *keys[] = { "none", "key", "key" };
    size_t lengths[] = { 4, 3, 3 };
    ginnel_cache_item items[3];
    CHECK(ginnel_cache_mget(cache, keys, lengths, 3, items) == 2);
    CHECK(!items[0].value && items[1].value && items[1].length == 0 && items[2].value);
    CHECK(ginnel_cache_get(cache, "not a key", 9, &item) == -1);
    CHECK(strstr(ginnel_cache_error(), "250 bytes"));
    CHECK(ginnel_cache_delete(cache, "key", 3) == 1);
    CHECK(ginnel_cache_delete(cache, "key", 3) == 0);
    uint64_t direct, asked;
    ginnel_cache_counts(cache, &direct, &asked);
    printf("direct %llu asked %llu\n", (unsigned long long)direct, (unsigned long long)asked);
    ginnel_cache_close(cache);
    CHECK(!ginnel_cache_open("/no/such/socket"));
    CHECK(strstr(ginnel_cache_error(), "No such file"));
    ginnel_cache_close(NULL);
    return 0;
}
