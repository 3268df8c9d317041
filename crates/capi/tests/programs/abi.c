/* What libginnel.so.0 promised with version 0.1: every function as it was declared, every number, and
 * where everything lies in the structures. The compiler refuses a header that breaks a promise beside
 * this. Nothing here is ever changed; what a later version adds is added. */
#include <ginnel.h>
#include <stddef.h>

#define IS(name, number) _Static_assert((name) == (number), #name)
#define LIES(type, field, at) _Static_assert(offsetof(type, field) == (at), #type "." #field)
#define HAS(type, bytes) _Static_assert(sizeof(type) == (bytes), #type)

int ginnel_errcode(void);
const char *ginnel_errmsg(void);
const char *ginnel_version(void);
int ginnel_open(const char *name, const ginnel_options *options, ginnel_segment **out);
int ginnel_remove(ginnel_segment *segment, const char *name);
void ginnel_close(ginnel_segment *segment);
int ginnel_memory_create(ginnel_segment *segment, const char *name, uint64_t size, ginnel_memory
    **out);
int ginnel_memory_open(ginnel_segment *segment, const char *name, ginnel_memory **out);
int ginnel_memory_open_or_create(ginnel_segment *segment, const char *name, uint64_t size,
    ginnel_memory **out);
int ginnel_memory_read(const ginnel_memory *memory, size_t at, void *bytes, size_t len);
int ginnel_memory_write(const ginnel_memory *memory, size_t at, const void *bytes, size_t len);
void *ginnel_memory_data(const ginnel_memory *memory);
size_t ginnel_memory_size(const ginnel_memory *memory);
void ginnel_memory_close(ginnel_memory *memory);
int ginnel_queue_create(ginnel_segment *segment, const char *name, const ginnel_queue_options
    *options);
int ginnel_queue_open_or_create(ginnel_segment *segment, const char *name, const
    ginnel_queue_options *options);
int ginnel_sender_open(ginnel_segment *segment, const char *name, enum ginnel_when_full full,
    ginnel_sender **out);
int ginnel_sender_send(ginnel_sender *sender, const void *bytes, size_t len, int64_t time);
int ginnel_sender_loan(ginnel_sender *sender, size_t len, int64_t time, ginnel_loan *out);
int ginnel_loan_send(ginnel_loan *loan, size_t len);
int ginnel_loan_drop(ginnel_loan *loan);
int ginnel_sender_fd(ginnel_sender *sender);
int ginnel_sender_close(ginnel_sender *sender);
int ginnel_receiver_open(ginnel_segment *segment, const char *name, ginnel_receiver **out);
int ginnel_receiver_take(ginnel_receiver *receiver, int64_t time, ginnel_message *out);
int ginnel_message_drop(ginnel_message *message);
int ginnel_receiver_read(ginnel_receiver *receiver, void *bytes, size_t room, size_t *len, int64_t
    time);
int ginnel_receiver_fd(ginnel_receiver *receiver);
int ginnel_receiver_close(ginnel_receiver *receiver);
int ginnel_listener_open(ginnel_segment *segment, const char *name, ginnel_listener **out);
int ginnel_listener_accept(ginnel_listener *listener, int64_t time, ginnel_stream **out);
int ginnel_listener_fd(ginnel_listener *listener);
void ginnel_listener_close(ginnel_listener *listener);
int ginnel_stream_connect(ginnel_segment *segment, const char *name, int64_t time, ginnel_stream
    **out);
int ginnel_stream_read(ginnel_stream *stream, void *bytes, size_t room, size_t *len, int64_t time);
int ginnel_stream_write(ginnel_stream *stream, const void *bytes, size_t len, size_t *written,
    int64_t time);
int ginnel_stream_shutdown(ginnel_stream *stream);
int ginnel_stream_fd(ginnel_stream *stream);
int ginnel_stream_write_fd(ginnel_stream *stream);
void ginnel_stream_close(ginnel_stream *stream);
int ginnel_mutex_create(ginnel_segment *segment, const char *name, ginnel_mutex **out);
int ginnel_mutex_open(ginnel_segment *segment, const char *name, ginnel_mutex **out);
int ginnel_mutex_open_or_create(ginnel_segment *segment, const char *name, ginnel_mutex **out);
int ginnel_mutex_lock(ginnel_mutex *mutex, int64_t time);
int ginnel_mutex_mark_consistent(ginnel_mutex *mutex);
int ginnel_mutex_unlock(ginnel_mutex *mutex);
void ginnel_mutex_close(ginnel_mutex *mutex);
int ginnel_rwlock_create(ginnel_segment *segment, const char *name, ginnel_rwlock **out);
int ginnel_rwlock_open(ginnel_segment *segment, const char *name, ginnel_rwlock **out);
int ginnel_rwlock_open_or_create(ginnel_segment *segment, const char *name, ginnel_rwlock **out);
int ginnel_rwlock_read(ginnel_rwlock *lock, int64_t time);
int ginnel_rwlock_write(ginnel_rwlock *lock, int64_t time);
int ginnel_rwlock_mark_consistent(ginnel_rwlock *lock);
int ginnel_rwlock_unlock(ginnel_rwlock *lock);
void ginnel_rwlock_close(ginnel_rwlock *lock);
int ginnel_semaphore_create(ginnel_segment *segment, const char *name, uint32_t permits, uint32_t
    most, ginnel_semaphore **out);
int ginnel_semaphore_open(ginnel_segment *segment, const char *name, ginnel_semaphore **out);
int ginnel_semaphore_open_or_create(ginnel_segment *segment, const char *name, uint32_t permits,
    uint32_t most, ginnel_semaphore **out);
int ginnel_semaphore_acquire(ginnel_semaphore *semaphore, int64_t time);
int ginnel_semaphore_release(ginnel_semaphore *semaphore);
int ginnel_semaphore_use_up(ginnel_semaphore *semaphore);
int ginnel_semaphore_add(ginnel_semaphore *semaphore, uint32_t count);
uint32_t ginnel_semaphore_available(const ginnel_semaphore *semaphore);
int ginnel_semaphore_fd(ginnel_semaphore *semaphore);
void ginnel_semaphore_close(ginnel_semaphore *semaphore);
int ginnel_event_create(ginnel_segment *segment, const char *name, enum ginnel_reset reset,
    ginnel_event **out);
int ginnel_event_open(ginnel_segment *segment, const char *name, ginnel_event **out);
int ginnel_event_open_or_create(ginnel_segment *segment, const char *name, enum ginnel_reset reset,
    ginnel_event **out);
int ginnel_event_set(ginnel_event *event);
int ginnel_event_reset(ginnel_event *event);
int ginnel_event_wait(ginnel_event *event, int64_t time);
int ginnel_event_is_set(const ginnel_event *event);
int ginnel_event_fd(ginnel_event *event);
void ginnel_event_close(ginnel_event *event);
int ginnel_barrier_create(ginnel_segment *segment, const char *name, uint32_t parties,
    ginnel_barrier **out);
int ginnel_barrier_open(ginnel_segment *segment, const char *name, ginnel_barrier **out);
int ginnel_barrier_open_or_create(ginnel_segment *segment, const char *name, uint32_t parties,
    ginnel_barrier **out);
int ginnel_barrier_wait(ginnel_barrier *barrier, int64_t time);
void ginnel_barrier_close(ginnel_barrier *barrier);

IS(GINNEL_OK, 0);
IS(GINNEL_ENOTFOUND, 1);
IS(GINNEL_ETAKEN, 2);
IS(GINNEL_EKIND, 3);
IS(GINNEL_ESHAPE, 4);
IS(GINNEL_EINVALID, 5);
IS(GINNEL_EBUSY, 6);
IS(GINNEL_EINUSE, 7);
IS(GINNEL_EFULL, 8);
IS(GINNEL_ENOMEMORY, 9);
IS(GINNEL_ETOOLARGE, 10);
IS(GINNEL_EWOULDBLOCK, 11);
IS(GINNEL_ETIMEDOUT, 12);
IS(GINNEL_EENDED, 13);
IS(GINNEL_EDIED, 14);
IS(GINNEL_EDEADLOCK, 15);
IS(GINNEL_EFORKED, 16);
IS(GINNEL_ELOST, 17);
IS(GINNEL_EGONE, 18);
IS(GINNEL_ECORRUPT, 19);
IS(GINNEL_ESEGMENT, 20);
IS(GINNEL_ESYSTEM, 21);
IS(GINNEL_EOTHER, 22);
IS(GINNEL_EBROKEN, 23);
IS(GINNEL_WAIT, 0);
IS(GINNEL_REFUSE, 1);
IS(GINNEL_DROP_OLDEST, 2);
IS(GINNEL_RESET_MANUAL, 0);
IS(GINNEL_RESET_AUTO, 1);
IS(GINNEL_FOREVER, -1);

LIES(ginnel_options, size, 0);
LIES(ginnel_options, segment_size, 8);
LIES(ginnel_options, existing, 16);
HAS(ginnel_options, 24);
LIES(ginnel_queue_options, size, 0);
LIES(ginnel_queue_options, capacity, 8);
LIES(ginnel_queue_options, senders, 12);
LIES(ginnel_queue_options, message_size, 16);
LIES(ginnel_queue_options, loans, 24);
HAS(ginnel_queue_options, 32);
LIES(ginnel_loan, data, 0);
LIES(ginnel_loan, len, 8);
LIES(ginnel_loan, private_, 16);
HAS(ginnel_loan, 32);
LIES(ginnel_message, data, 0);
LIES(ginnel_message, len, 8);
LIES(ginnel_message, private_, 16);
HAS(ginnel_message, 40);

/* All of them are there to be linked with. */
typedef void (*any)(void);
static const any all[] = {
    (any)ginnel_errcode, (any)ginnel_errmsg, (any)ginnel_version, (any)ginnel_open,
    (any)ginnel_remove, (any)ginnel_close, (any)ginnel_memory_create, (any)ginnel_memory_open,
    (any)ginnel_memory_open_or_create, (any)ginnel_memory_read, (any)ginnel_memory_write,
    (any)ginnel_memory_data, (any)ginnel_memory_size, (any)ginnel_memory_close,
    (any)ginnel_queue_create, (any)ginnel_queue_open_or_create, (any)ginnel_sender_open,
    (any)ginnel_sender_send, (any)ginnel_sender_loan, (any)ginnel_loan_send, (any)ginnel_loan_drop,
    (any)ginnel_sender_fd, (any)ginnel_sender_close, (any)ginnel_receiver_open,
    (any)ginnel_receiver_take, (any)ginnel_message_drop, (any)ginnel_receiver_read,
    (any)ginnel_receiver_fd, (any)ginnel_receiver_close, (any)ginnel_listener_open,
    (any)ginnel_listener_accept, (any)ginnel_listener_fd, (any)ginnel_listener_close,
    (any)ginnel_stream_connect, (any)ginnel_stream_read, (any)ginnel_stream_write,
    (any)ginnel_stream_shutdown, (any)ginnel_stream_fd, (any)ginnel_stream_write_fd,
    (any)ginnel_stream_close, (any)ginnel_mutex_create, (any)ginnel_mutex_open,
    (any)ginnel_mutex_open_or_create, (any)ginnel_mutex_lock, (any)ginnel_mutex_mark_consistent,
    (any)ginnel_mutex_unlock, (any)ginnel_mutex_close, (any)ginnel_rwlock_create,
    (any)ginnel_rwlock_open, (any)ginnel_rwlock_open_or_create, (any)ginnel_rwlock_read,
    (any)ginnel_rwlock_write, (any)ginnel_rwlock_mark_consistent, (any)ginnel_rwlock_unlock,
    (any)ginnel_rwlock_close, (any)ginnel_semaphore_create, (any)ginnel_semaphore_open,
    (any)ginnel_semaphore_open_or_create, (any)ginnel_semaphore_acquire,
    (any)ginnel_semaphore_release, (any)ginnel_semaphore_use_up, (any)ginnel_semaphore_add,
    (any)ginnel_semaphore_available, (any)ginnel_semaphore_fd, (any)ginnel_semaphore_close,
    (any)ginnel_event_create, (any)ginnel_event_open, (any)ginnel_event_open_or_create,
    (any)ginnel_event_set, (any)ginnel_event_reset, (any)ginnel_event_wait,
    (any)ginnel_event_is_set, (any)ginnel_event_fd, (any)ginnel_event_close,
    (any)ginnel_barrier_create, (any)ginnel_barrier_open, (any)ginnel_barrier_open_or_create,
    (any)ginnel_barrier_wait, (any)ginnel_barrier_close,
};

int main(void) {
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!all[i]) return 1;
    return 0;
}
