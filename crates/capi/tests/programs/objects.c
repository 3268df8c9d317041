// A program in C that uses every kind of object with children of its own: memory, a queue in place,
// a lock whose holder dies. Says what is wrong on standard error, and ends with 1 then.

#include <ginnel.h>

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// What programs were compiled against stays as it is.
_Static_assert(sizeof(ginnel_loan) == 32, "size");
_Static_assert(sizeof(ginnel_message) == 40, "size");
_Static_assert(sizeof(ginnel_options) == 24, "size");
_Static_assert(sizeof(ginnel_queue_options) == 32, "size");

#define CHECK(is)                                                                           \
    do {                                                                                    \
        if (!(is)) {                                                                        \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #is, ginnel_errmsg());           \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)

enum { COUNT = 1000 };

static ginnel_segment *segment_of(void) {
    ginnel_options options = {.size = sizeof options, .segment_size = 32 << 20};
    ginnel_segment *segment;
    CHECK(ginnel_open("c", &options, &segment) == 0);
    return segment;
}

// In a child: sends numbers, every other one in place, and dies with the lock.
static void child(void) {
    ginnel_segment *segment = segment_of();
    ginnel_memory *memory;
    ginnel_mutex *mutex;
    ginnel_sender *sender;
    CHECK(ginnel_memory_open(segment, "memory", &memory) == 0);
    CHECK(ginnel_mutex_open(segment, "lock", &mutex) == 0);
    CHECK(ginnel_sender_open(segment, "queue", GINNEL_WAIT, &sender) == 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        if (i % 2) {
            CHECK(ginnel_sender_send(sender, &i, sizeof i, GINNEL_FOREVER) == 0);
            continue;
        }
        ginnel_loan loan;
        CHECK(ginnel_sender_loan(sender, 100, GINNEL_FOREVER, &loan) == 0 && loan.len == 100);
        CHECK(ginnel_sender_close(sender) == -1 && ginnel_errcode() == GINNEL_EINUSE);
        memcpy(loan.data, &i, sizeof i);
        CHECK(ginnel_loan_send(&loan, sizeof i) == 0);
        CHECK(ginnel_loan_send(&loan, sizeof i) == -1 && ginnel_errcode() == GINNEL_EINVALID);
    }
    CHECK(ginnel_mutex_lock(mutex, GINNEL_FOREVER) == 0);
    atomic_store((_Atomic uint64_t *)ginnel_memory_data(memory), 1);
    abort();
}

static void receive_all(ginnel_receiver *receiver) {
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t got = 0;
        if (i % 3) {
            size_t len;
            CHECK(ginnel_receiver_read(receiver, &got, sizeof got, &len, GINNEL_FOREVER) == 0);
            CHECK(len == sizeof got);
        } else {
            ginnel_message message;
            CHECK(ginnel_receiver_take(receiver, GINNEL_FOREVER, &message) == 0);
            CHECK(message.len == sizeof got);
            memcpy(&got, message.data, sizeof got);
            CHECK(ginnel_receiver_close(receiver) == -1 && ginnel_errcode() == GINNEL_EINUSE);
            CHECK(ginnel_message_drop(&message) == 0);
            CHECK(ginnel_message_drop(&message) == -1 && ginnel_errcode() == GINNEL_EINVALID);
        }
        CHECK(got == i);
    }
}

static void refusals(ginnel_segment *segment) {
    ginnel_memory *memory;
    CHECK(ginnel_memory_open(segment, "nothing", &memory) == -1);
    CHECK(ginnel_errcode() == GINNEL_ENOTFOUND && strstr(ginnel_errmsg(), "\"nothing\""));
    CHECK(ginnel_memory_open(NULL, "nothing", &memory) == -1 && ginnel_errcode() == GINNEL_EINVALID);
    CHECK(ginnel_memory_open(segment, NULL, &memory) == -1 && ginnel_errcode() == GINNEL_EINVALID);
    CHECK(ginnel_memory_open(segment, "queue", &memory) == -1 && ginnel_errcode() == GINNEL_EKIND);
    CHECK(ginnel_queue_create(segment, "queue", NULL) == -1 && ginnel_errcode() == GINNEL_ETAKEN);
    // Nowhere to put a handle: nothing is made that would keep its name.
    CHECK(ginnel_memory_create(segment, "nowhere", 8, NULL) == -1 && ginnel_errcode() == GINNEL_EINVALID);
    CHECK(ginnel_mutex_create(segment, "nowhere", NULL) == -1 && ginnel_errcode() == GINNEL_EINVALID);
    CHECK(ginnel_semaphore_create(segment, "nowhere", 1, 1, NULL) == -1);
    CHECK(ginnel_errcode() == GINNEL_EINVALID);
    CHECK(ginnel_rwlock_open_or_create(segment, "nowhere", NULL) == -1);
    CHECK(ginnel_barrier_create(segment, "nowhere", 2, NULL) == -1);
    CHECK(ginnel_errcode() == GINNEL_EINVALID && ginnel_remove(segment, "nowhere") == -1);
    CHECK(ginnel_errcode() == GINNEL_ENOTFOUND);
    // Options of a newer version, which this one would not obey.
    struct { ginnel_queue_options known; uint64_t unknown; } newer = {{0}, 1};
    newer.known.size = sizeof newer;
    CHECK(ginnel_queue_create(segment, "new", &newer.known) == -1);
    CHECK(ginnel_errcode() == GINNEL_EINVALID);
    newer.unknown = 0;
    CHECK(ginnel_queue_create(segment, "new", &newer.known) == 0);
    CHECK(ginnel_remove(segment, "new") == 0 && ginnel_remove(segment, "new") == -1);
}

int main(void) {
    CHECK(strncmp(ginnel_version(), "0.1.", 4) == 0);
    // A child that has not opened anything yet, so that it may be made by fork alone.
    int begin[2];
    CHECK(pipe(begin) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        CHECK(read(begin[0], &byte, 1) == 1);
        child();
    }
    ginnel_segment *segment = segment_of();
    ginnel_memory *memory;
    ginnel_mutex *mutex;
    ginnel_receiver *receiver;
    ginnel_queue_options options = {.size = sizeof options, .capacity = 8, .message_size = 100};
    CHECK(ginnel_memory_create(segment, "memory", 8192, &memory) == 0);
    CHECK(ginnel_mutex_create(segment, "lock", &mutex) == 0);
    CHECK(ginnel_queue_create(segment, "queue", &options) == 0);
    CHECK(ginnel_receiver_open(segment, "queue", &receiver) == 0);
    CHECK(ginnel_receiver_fd(receiver) >= 0);
    size_t len;
    CHECK(ginnel_receiver_read(receiver, NULL, 0, &len, 0) == -1);
    CHECK(ginnel_errcode() == GINNEL_EWOULDBLOCK);
    CHECK(write(begin[1], "x", 1) == 1);
    struct pollfd told = {ginnel_receiver_fd(receiver), POLLIN, 0};
    CHECK(poll(&told, 1, 60000) == 1);
    receive_all(receiver);

    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CHECK(ginnel_mutex_lock(mutex, 1000000000) == 1);
    CHECK(ginnel_mutex_lock(mutex, 0) == -1 && ginnel_errcode() == GINNEL_EDEADLOCK);
    uint64_t word;
    CHECK(ginnel_memory_read(memory, 0, &word, sizeof word) == 0 && word == 1);
    CHECK(ginnel_memory_write(memory, 8190, &word, sizeof word) == -1);
    CHECK(ginnel_mutex_mark_consistent(mutex) == 0 && ginnel_mutex_unlock(mutex) == 0);
    CHECK(ginnel_mutex_unlock(mutex) == -1);
    CHECK(ginnel_mutex_lock(mutex, 0) == 0 && ginnel_mutex_unlock(mutex) == 0);
    CHECK(ginnel_receiver_read(receiver, NULL, 0, &len, GINNEL_FOREVER) == -1);
    CHECK(ginnel_errcode() == GINNEL_EDIED);
    refusals(segment);

    // A child that has its parent's handles may close them, and nothing else.
    pid = fork();
    if (pid == 0) {
        CHECK(ginnel_memory_write(memory, 0, &word, sizeof word) == -1);
        CHECK(ginnel_errcode() == GINNEL_EFORKED);
        ginnel_memory_close(memory);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(ginnel_memory_size(memory) == 8192 && ginnel_memory_write(memory, 0, "x", 1) == 0);
    CHECK(ginnel_receiver_close(receiver) == 0);
    ginnel_mutex_close(mutex);
    ginnel_memory_close(memory);
    ginnel_close(segment);
    return 0;
}
