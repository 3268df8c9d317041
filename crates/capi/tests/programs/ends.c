// What happens at the ends of things: a thread whose keys' destructors still call, a lock that is
// closed while it is held, a child of fork with a loan out.

#include "check.h"
#include <ginnel.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static ginnel_segment *segment;
static ginnel_mutex *mutex;
static pthread_key_t key;
static int destroyed;

// Runs after the destructors of the library's own values of this thread.
static void destructor(void *value) {
    (void)value;
    ginnel_memory *memory;
    CHECK(ginnel_memory_open(segment, "nothing", &memory) == -1);
    CHECK(ginnel_errcode() == GINNEL_ENOTFOUND && strstr(ginnel_errmsg(), "\"nothing\""));
    CHECK(ginnel_mutex_lock(mutex, GINNEL_FOREVER) == 0);
    CHECK(ginnel_mutex_lock(mutex, 0) == -1 && ginnel_errcode() == GINNEL_EDEADLOCK);
    CHECK(ginnel_mutex_unlock(mutex) == 0);
    destroyed++;
}

static void *thread(void *argument) {
    ginnel_memory *memory;
    CHECK(pthread_setspecific(key, argument) == 0);
    CHECK(ginnel_mutex_lock(mutex, GINNEL_FOREVER) == 0 && ginnel_mutex_unlock(mutex) == 0);
    CHECK(ginnel_memory_open(segment, "nothing", &memory) == -1);
    return NULL;
}

static void a_destructor_may_call(void) {
    pthread_t id;
    CHECK(pthread_key_create(&key, destructor) == 0);
    CHECK(pthread_create(&id, NULL, thread, &key) == 0 && pthread_join(id, NULL) == 0);
    CHECK(destroyed == 1);
}

static void a_lock_is_closed_while_it_is_held(void) {
    ginnel_mutex *again, *other;
    CHECK(ginnel_mutex_open(segment, "lock", &again) == 0);
    CHECK(ginnel_mutex_open(segment, "lock", &other) == 0);
    CHECK(ginnel_mutex_lock(again, 0) == 0);
    // Another handle of it is another matter.
    ginnel_mutex_close(other);
    CHECK(ginnel_mutex_lock(mutex, 0) == -1 && ginnel_errcode() == GINNEL_EDEADLOCK);
    ginnel_mutex_close(again);
    CHECK(ginnel_mutex_lock(mutex, 0) == 1);
    CHECK(ginnel_mutex_mark_consistent(mutex) == 0 && ginnel_mutex_unlock(mutex) == 0);
}

static void a_child_has_its_parents_loans(void) {
    ginnel_queue_options options = {.size = sizeof options, .capacity = 4, .message_size = 100};
    ginnel_sender *sender;
    ginnel_receiver *receiver;
    ginnel_loan loan;
    ginnel_message message;
    CHECK(ginnel_queue_create(segment, "queue", &options) == 0);
    CHECK(ginnel_receiver_open(segment, "queue", &receiver) == 0);
    CHECK(ginnel_sender_open(segment, "queue", GINNEL_WAIT, &sender) == 0);
    CHECK(ginnel_sender_send(sender, "held", 4, 0) == 0);
    CHECK(ginnel_receiver_take(receiver, 0, &message) == 0);
    CHECK(ginnel_sender_loan(sender, 100, 0, &loan) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(ginnel_sender_fd(sender) == -1 && ginnel_errcode() == GINNEL_EFORKED);
        CHECK(ginnel_loan_send(&loan, 3) == -1 && ginnel_errcode() == GINNEL_EFORKED);
        CHECK(ginnel_sender_close(sender) == 0);
        CHECK(ginnel_receiver_close(receiver) == 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(ginnel_sender_close(sender) == -1 && ginnel_errcode() == GINNEL_EINUSE);
    CHECK(ginnel_message_drop(&message) == 0 && ginnel_loan_send(&loan, 3) == 0);
    CHECK(ginnel_receiver_take(receiver, 0, &message) == 0 && message.len == 3);
    CHECK(ginnel_message_drop(&message) == 0);
    CHECK(ginnel_sender_close(sender) == 0 && ginnel_receiver_close(receiver) == 0);
}

int main(void) {
    ginnel_options options = {.size = sizeof options, .segment_size = 32 << 20};
    CHECK(ginnel_open("ends", &options, &segment) == 0);
    CHECK(ginnel_mutex_create(segment, "lock", &mutex) == 0);
    a_destructor_may_call();
    a_lock_is_closed_while_it_is_held();
    a_child_has_its_parents_loans();
    ginnel_mutex_close(mutex);
    ginnel_close(segment);
    return 0;
}
