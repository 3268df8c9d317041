// Two threads with one handle: what serves one at a time says so.

#include "check.h"
#include <ginnel.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static ginnel_receiver *receiver;
static ginnel_barrier *barrier;

static void *take(void *given) {
    ginnel_message *message = given;
    // The other thread may be in a short call with it just then.
    while (ginnel_receiver_take(receiver, 60 * SECOND, message) != 0) CHECK(ginnel_errcode() == GINNEL_EINUSE);
    return NULL;
}

static void *come(void *given) {
    (void)given;
    int code;
    while ((code = ginnel_barrier_wait(barrier, 60 * SECOND)) == -1) CHECK(ginnel_errcode() == GINNEL_EINUSE);
    CHECK(code == 0);
    return NULL;
}

int main(void) {
    ginnel_options options = {.size = sizeof options, .segment_size = 32 << 20};
    ginnel_segment *segment;
    ginnel_sender *sender;
    ginnel_barrier *other;
    pthread_t thread;
    CHECK(ginnel_open("threads", &options, &segment) == 0);
    CHECK(ginnel_queue_create(segment, "queue", NULL) == 0);
    CHECK(ginnel_receiver_open(segment, "queue", &receiver) == 0);
    CHECK(ginnel_sender_open(segment, "queue", GINNEL_WAIT, &sender) == 0);
    ginnel_message first, second;
    CHECK(pthread_create(&thread, NULL, take, &first) == 0);
    // Until that one is in its call this one finds nothing; from then on it is refused.
    int code = 0;
    for (int i = 0; i < 60000 && code != GINNEL_EINUSE; i++) {
        CHECK(ginnel_receiver_take(receiver, 0, &second) == -1);
        code = ginnel_errcode();
        CHECK(code == GINNEL_EINUSE || code == GINNEL_EWOULDBLOCK);
        usleep(1000);
    }
    CHECK(code == GINNEL_EINUSE && ginnel_receiver_fd(receiver) == -1);
    CHECK(ginnel_receiver_close(receiver) == -1 && ginnel_errcode() == GINNEL_EINUSE);
    CHECK(ginnel_sender_send(sender, "one", 4, SECOND) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(first.len == 4 && ginnel_message_drop(&first) == 0);

    CHECK(ginnel_barrier_create(segment, "barrier", 2, &barrier) == 0);
    CHECK(ginnel_barrier_open(segment, "barrier", &other) == 0);
    CHECK(pthread_create(&thread, NULL, come, NULL) == 0);
    code = 0;
    for (int i = 0; i < 60000 && code != GINNEL_EINUSE; i++) {
        CHECK(ginnel_barrier_wait(barrier, 0) == -1);
        code = ginnel_errcode();
        CHECK(code == GINNEL_EINUSE || code == GINNEL_EWOULDBLOCK || code == GINNEL_ETIMEDOUT);
        usleep(1000);
    }
    CHECK(code == GINNEL_EINUSE && ginnel_barrier_wait(other, 60 * SECOND) == 1);
    CHECK(pthread_join(thread, NULL) == 0);
    ginnel_barrier_close(other);
    ginnel_barrier_close(barrier);
    CHECK(ginnel_receiver_close(receiver) == 0 && ginnel_sender_close(sender) == 0);
    ginnel_close(segment);
    return 0;
}
