/* ginnel.Cache: the C client's calls for Java. A key or a value crosses by one copy either way. */
#include "ginnel-cache.h"
#include "ginnel_Cache.h"
#include <stdlib.h>

enum { MAX_KEY = 250, ON_STACK = 4096 };

static ginnel_cache *cache_of(jlong handle)
{
    return (ginnel_cache *)(intptr_t)handle;
}

static void fail(JNIEnv *env)
{
    jclass kind = (*env)->FindClass(env, "java/io/IOException");
    if (kind)
        (*env)->ThrowNew(env, kind, ginnel_cache_error());
}

/* Copies a key that is not too long; of a longer one too much, so that the library refuses it. */
static size_t key_of(JNIEnv *env, jbyteArray key, jbyte *into)
{
    jsize length = (*env)->GetArrayLength(env, key);
    if (length > MAX_KEY)
        length = MAX_KEY + 1;
    (*env)->GetByteArrayRegion(env, key, 0, length, into);
    return (size_t)length;
}

JNIEXPORT jlong JNICALL Java_ginnel_Cache_open(JNIEnv *env, jclass self, jstring address)
{
    (void)self;
    const char *words = (*env)->GetStringUTFChars(env, address, NULL);
    if (!words)
        return 0;
    ginnel_cache *cache = ginnel_cache_open(words);
    (*env)->ReleaseStringUTFChars(env, address, words);
    if (!cache)
        fail(env);
    return (jlong)(intptr_t)cache;
}

JNIEXPORT void JNICALL Java_ginnel_Cache_close(JNIEnv *env, jclass self, jlong handle)
{
    (void)env, (void)self;
    ginnel_cache_close(cache_of(handle));
}

JNIEXPORT jbyteArray JNICALL Java_ginnel_Cache_get(JNIEnv *env, jclass self, jlong handle, jbyteArray key)
{
    (void)self;
    jbyte bytes[MAX_KEY + 1];
    size_t length = key_of(env, key, bytes);
    ginnel_cache_item item;
    int found = ginnel_cache_get(cache_of(handle), bytes, length, &item);
    if (found < 0)
        fail(env);
    if (found != 1)
        return NULL;
    jbyteArray value = (*env)->NewByteArray(env, (jsize)item.length);
    if (value)
        (*env)->SetByteArrayRegion(env, value, 0, (jsize)item.length, item.value);
    return value;
}

JNIEXPORT jboolean JNICALL Java_ginnel_Cache_set(JNIEnv *env, jclass self, jlong handle, jbyteArray key, jbyteArray value)
{
    (void)self;
    jbyte bytes[MAX_KEY + 1], small[ON_STACK], *large = NULL;
    size_t key_length = key_of(env, key, bytes);
    jsize length = (*env)->GetArrayLength(env, value);
    if (length > ON_STACK && !(large = malloc((size_t)length)))
        return JNI_FALSE;
    jbyte *copy = large ? large : small;
    (*env)->GetByteArrayRegion(env, value, 0, length, copy);
    int stored = ginnel_cache_set(cache_of(handle), bytes, key_length, copy, (size_t)length, 0, 0);
    free(large);
    if (stored < 0)
        fail(env);
    return stored == 1;
}

JNIEXPORT jboolean JNICALL Java_ginnel_Cache_delete(JNIEnv *env, jclass self, jlong handle, jbyteArray key)
{
    (void)self;
    jbyte bytes[MAX_KEY + 1];
    int deleted = ginnel_cache_delete(cache_of(handle), bytes, key_of(env, key, bytes));
    if (deleted < 0)
        fail(env);
    return deleted == 1;
}

JNIEXPORT jlong JNICALL Java_ginnel_Cache_counted(JNIEnv *env, jclass self, jlong handle, jboolean directly)
{
    (void)env, (void)self;
    uint64_t direct, asked;
    ginnel_cache_counts(cache_of(handle), &direct, &asked);
    return (jlong)(directly ? direct : asked);
}
