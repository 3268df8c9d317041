/* Ginnel's named objects in C: memory, queues, locks and what else processes, containers and
 * virtual machines of one host share by name. docs/sdk.md explains them, with examples.
 *
 * Every function that can fail returns -1 then; ginnel_errcode() and ginnel_errmsg() say why, of the
 * calling thread's last failure. A child of fork cannot use its parent's handles (GINNEL_EFORKED) but
 * to close them; it opens the segment again.
 *
 * Threads: handles of senders, receivers and barriers serve one at a time. A call with one of them,
 * or with a loan or message of it, fails with GINNEL_EINUSE while another thread is in such a call,
 * also where that one sleeps. All other handles serve any number of threads at once. What a caller
 * must not do with any: close a handle while another thread is in a call with it, or use it after
 * that. The library cannot tell, and the program may crash. A call that waits is not ended by a
 * signal: where a handler is to end it, give it a time limit, and look at what the handler left.
 *
 * Any process of a segment can write any byte of it, also where a pointer from here leads: who shares
 * a segment with strangers copies bytes out (ginnel_memory_read, ginnel_receiver_read) and checks the
 * copy.
 *
 * Times are nanoseconds: GINNEL_FOREVER, 0 (do not wait: GINNEL_EWOULDBLOCK), or how long at most.
 */
#ifndef GINNEL_H
#define GINNEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this interface. A newer library serves programs of an older minor version. */
#define GINNEL_VERSION_MAJOR 0
#define GINNEL_VERSION_MINOR 1

#define GINNEL_FOREVER INT64_C(-1)

/* What ginnel_errcode() gives. */
enum ginnel_error {
    GINNEL_OK = 0,
    GINNEL_ENOTFOUND = 1,    /* no object of this name */
    GINNEL_ETAKEN = 2,       /* the name is taken */
    GINNEL_EKIND = 3,        /* the object is of another kind */
    GINNEL_ESHAPE = 4,       /* it was made with other measures, or by another version */
    GINNEL_EINVALID = 5,     /* a measure, a name or an argument that cannot be */
    GINNEL_EBUSY = 6,        /* another process has been making it for seconds */
    GINNEL_EINUSE = 7,       /* the role is another's; loans or messages are out; another thread's turn */
    GINNEL_EFULL = 8,        /* names; objects, messages or loans of this process; permits */
    GINNEL_ENOMEMORY = 9,    /* the segment, or the system, has no memory left */
    GINNEL_ETOOLARGE = 10,   /* the message does not fit */
    GINNEL_EWOULDBLOCK = 11, /* nothing to be had at the moment */
    GINNEL_ETIMEDOUT = 12,   /* time is over */
    GINNEL_EENDED = 13,      /* everybody at the other end has left */
    GINNEL_EDIED = 14,       /* the last one at the other end died */
    GINNEL_EDEADLOCK = 15,   /* this thread holds the lock already */
    GINNEL_EFORKED = 16,     /* the handle is that of the process before fork */
    GINNEL_ELOST = 17,       /* this process was taken for dead */
    GINNEL_EGONE = 18,       /* the segment's device was unplugged */
    GINNEL_ECORRUPT = 19,    /* somebody wrote nonsense into the object */
    GINNEL_ESEGMENT = 20,    /* the segment cannot be used; the message says why */
    GINNEL_ESYSTEM = 21,     /* a system call failed */
    GINNEL_EOTHER = 22,
    GINNEL_EBROKEN = 23      /* one that takes part in the barrier died before it came */
};

/* Why the calling thread's last call failed. */
int ginnel_errcode(void);
/* The same in words, valid until the thread's next failure. Never NULL. */
const char *ginnel_errmsg(void);
/* "MAJOR.MINOR.PATCH" of the library. */
const char *ginnel_version(void);

/* ---- Segments ---- */

typedef struct ginnel_segment ginnel_segment;

/* size first: sizeof(struct ginnel_options). Zeroes are defaults. */
typedef struct ginnel_options {
    size_t size;
    uint64_t segment_size; /* bytes of a file that is made now; 0: GINNEL_SIZE, else 1 GiB */
    int existing;          /* not 0: only a segment that is there */
} ginnel_options;

/* name: a name, a path, or NULL for the program's own; options may be NULL. */
int ginnel_open(const char *name, const ginnel_options *options, ginnel_segment **out);
/* Takes the name from an object: it is freed when nobody uses it any more. */
int ginnel_remove(ginnel_segment *segment, const char *name);
/* Frees the handle. The process stays in the segment for as long as it lives. NULL is nothing. */
void ginnel_close(ginnel_segment *segment);

/* ---- Memory ---- */

typedef struct ginnel_memory ginnel_memory;

/* Zeroed memory that keeps its name until it is removed. */
int ginnel_memory_create(ginnel_segment *segment, const char *name, uint64_t size,
                         ginnel_memory **out);
int ginnel_memory_open(ginnel_segment *segment, const char *name, ginnel_memory **out);
int ginnel_memory_open_or_create(ginnel_segment *segment, const char *name, uint64_t size,
                                 ginnel_memory **out);
/* Copies bytes out of it and into it. */
int ginnel_memory_read(const ginnel_memory *memory, size_t at, void *bytes, size_t len);
int ginnel_memory_write(const ginnel_memory *memory, size_t at, const void *bytes, size_t len);
/* Where it lies, aligned to 4096, until it is closed; and its bytes. */
void *ginnel_memory_data(const ginnel_memory *memory);
size_t ginnel_memory_size(const ginnel_memory *memory);
void ginnel_memory_close(ginnel_memory *memory);

/* ---- Queues ---- */

typedef struct ginnel_sender ginnel_sender;
typedef struct ginnel_receiver ginnel_receiver;

enum ginnel_when_full { GINNEL_WAIT = 0, GINNEL_REFUSE = 1, GINNEL_DROP_OLDEST = 2 };

/* size first: sizeof(struct ginnel_queue_options). Zeroes are defaults. */
typedef struct ginnel_queue_options {
    size_t size;
    uint32_t capacity;     /* messages of a sender that wait at most; 0: 64 */
    uint32_t senders;      /* at a time; 0: 16 */
    uint64_t message_size; /* bytes of the largest; 0: 4096 */
    uint32_t loans;        /* messages of a sender that the receiver holds at most; 0: 4 */
} ginnel_queue_options;

int ginnel_queue_create(ginnel_segment *segment, const char *name,
                        const ginnel_queue_options *options);
int ginnel_queue_open_or_create(ginnel_segment *segment, const char *name,
                                const ginnel_queue_options *options);

/* A buffer that is the caller's to write, or a message that it holds. What is private is the
 * library's. */
typedef struct ginnel_loan {
    void *data;
    size_t len;
    uint64_t private_[2];
} ginnel_loan;

typedef struct ginnel_message {
    const void *data;
    size_t len;
    uint64_t private_[3];
} ginnel_message;

int ginnel_sender_open(ginnel_segment *segment, const char *name, enum ginnel_when_full full,
                       ginnel_sender **out);
/* Sends a copy. */
int ginnel_sender_send(ginnel_sender *sender, const void *bytes, size_t len, int64_t time);
/* Borrows a buffer of len bytes: to be written at data, then sent, or given back. */
int ginnel_sender_loan(ginnel_sender *sender, size_t len, int64_t time, ginnel_loan *out);
/* len: at most the loan's. */
int ginnel_loan_send(ginnel_loan *loan, size_t len);
int ginnel_loan_drop(ginnel_loan *loan);
/* Readable when a call that said GINNEL_EWOULDBLOCK is worth another try, and now and then without.
 * The sender's own: not to be read or closed. -1 where none can be made. */
int ginnel_sender_fd(ginnel_sender *sender);
/* GINNEL_EINUSE where a loan is out. */
int ginnel_sender_close(ginnel_sender *sender);

int ginnel_receiver_open(ginnel_segment *segment, const char *name, ginnel_receiver **out);
/* Takes the next message: to be read at data, then given back. */
int ginnel_receiver_take(ginnel_receiver *receiver, int64_t time, ginnel_message *out);
int ginnel_message_drop(ginnel_message *message);
/* Copies the next message out, as much of it as there is room for, and gives it back. *len: its
 * bytes, all of them. */
int ginnel_receiver_read(ginnel_receiver *receiver, void *bytes, size_t room, size_t *len,
                         int64_t time);
int ginnel_receiver_fd(ginnel_receiver *receiver);
/* GINNEL_EINUSE where a message is held. */
int ginnel_receiver_close(ginnel_receiver *receiver);

/* ---- Streams ---- */

typedef struct ginnel_listener ginnel_listener;
typedef struct ginnel_stream ginnel_stream;

/* Streams of this name come in here; the name goes with this process, and with the handle. */
int ginnel_listener_open(ginnel_segment *segment, const char *name, ginnel_listener **out);
int ginnel_listener_accept(ginnel_listener *listener, int64_t time, ginnel_stream **out);
/* As ginnel_receiver_fd: for a call that said GINNEL_EWOULDBLOCK. */
int ginnel_listener_fd(ginnel_listener *listener);
void ginnel_listener_close(ginnel_listener *listener);

/* Waits until who listens has accepted. GINNEL_ENOTFOUND where nobody listens; GINNEL_EENDED or
 * GINNEL_EDIED where who listened has gone. */
int ginnel_stream_connect(ginnel_segment *segment, const char *name, int64_t time,
                          ginnel_stream **out);
/* One thread may read and one may write at the same time. */
/* Reads what there is, at least a byte, at most room. *len: how many; 0: nothing more comes.
 * GINNEL_EDIED where the other end died, after what it wrote. */
int ginnel_stream_read(ginnel_stream *stream, void *bytes, size_t room, size_t *len, int64_t time);
/* Writes all of it, or as much as goes in that time; fails where that is nothing. *written: how
 * many; may be NULL. GINNEL_EENDED or GINNEL_EDIED where nobody reads any more. */
int ginnel_stream_write(ginnel_stream *stream, const void *bytes, size_t len, size_t *written,
                        int64_t time);
/* Tells the other end that nothing more comes. Reading goes on. */
int ginnel_stream_shutdown(ginnel_stream *stream);
/* Readable when a read that said GINNEL_EWOULDBLOCK is worth another try, and now and then without;
 * and, readable too, when a write is. The stream's own: not to be read or closed. */
int ginnel_stream_fd(ginnel_stream *stream);
int ginnel_stream_write_fd(ginnel_stream *stream);
void ginnel_stream_close(ginnel_stream *stream);

/* ---- Mutex ---- */

typedef struct ginnel_mutex ginnel_mutex;

int ginnel_mutex_create(ginnel_segment *segment, const char *name, ginnel_mutex **out);
int ginnel_mutex_open(ginnel_segment *segment, const char *name, ginnel_mutex **out);
int ginnel_mutex_open_or_create(ginnel_segment *segment, const char *name, ginnel_mutex **out);
/* 0: held. 1: held, but a holder before died with it, and every holder is told until one calls
 * ginnel_mutex_mark_consistent. -1: not held. */
int ginnel_mutex_lock(ginnel_mutex *mutex, int64_t time);
/* By the thread that holds it. */
int ginnel_mutex_mark_consistent(ginnel_mutex *mutex);
int ginnel_mutex_unlock(ginnel_mutex *mutex);
/* Where the calling thread holds it, the next holder is told as of a dead one. */
void ginnel_mutex_close(ginnel_mutex *mutex);

/* ---- Reader-writer lock ---- */

typedef struct ginnel_rwlock ginnel_rwlock;

int ginnel_rwlock_create(ginnel_segment *segment, const char *name, ginnel_rwlock **out);
int ginnel_rwlock_open(ginnel_segment *segment, const char *name, ginnel_rwlock **out);
int ginnel_rwlock_open_or_create(ginnel_segment *segment, const char *name, ginnel_rwlock **out);
/* Beside others that read, or alone. 0: held. 1: held, but one that wrote died with it, and
 * everybody is told until one that writes calls ginnel_rwlock_mark_consistent. -1: not held. */
int ginnel_rwlock_read(ginnel_rwlock *lock, int64_t time);
int ginnel_rwlock_write(ginnel_rwlock *lock, int64_t time);
/* By the thread that holds it to write. */
int ginnel_rwlock_mark_consistent(ginnel_rwlock *lock);
/* By the thread that holds it, to read or to write. */
int ginnel_rwlock_unlock(ginnel_rwlock *lock);
/* Where the calling thread holds it to write, the next holder is told as of a dead one. */
void ginnel_rwlock_close(ginnel_rwlock *lock);

/* ---- Semaphore ---- */

typedef struct ginnel_semaphore ginnel_semaphore;

/* permits: free at first. most: as many there can be at any time, 1 to 32767. */
int ginnel_semaphore_create(ginnel_segment *segment, const char *name, uint32_t permits,
                            uint32_t most, ginnel_semaphore **out);
int ginnel_semaphore_open(ginnel_segment *segment, const char *name, ginnel_semaphore **out);
int ginnel_semaphore_open_or_create(ginnel_segment *segment, const char *name, uint32_t permits,
                                    uint32_t most, ginnel_semaphore **out);
/* A permit, which this handle has until it is given back or used up, or this process dies. */
int ginnel_semaphore_acquire(ginnel_semaphore *semaphore, int64_t time);
/* Gives one back that this handle has; GINNEL_EINVALID where it has none. */
int ginnel_semaphore_release(ginnel_semaphore *semaphore);
/* Likewise, but it is gone then. */
int ginnel_semaphore_use_up(ginnel_semaphore *semaphore);
/* So many more free permits; none, and GINNEL_EFULL, where there is no room for all. */
int ginnel_semaphore_add(ginnel_semaphore *semaphore, uint32_t count);
/* How many are free at the moment. */
uint32_t ginnel_semaphore_available(const ginnel_semaphore *semaphore);
/* As ginnel_sender_fd: for a call that said GINNEL_EWOULDBLOCK. */
int ginnel_semaphore_fd(ginnel_semaphore *semaphore);
/* What this handle has is given back. */
void ginnel_semaphore_close(ginnel_semaphore *semaphore);

/* ---- Event ---- */

typedef struct ginnel_event ginnel_event;

/* Stays set, and lets everybody through, until ginnel_event_reset; or lets one through and is reset
 * by that. */
enum ginnel_reset { GINNEL_RESET_MANUAL = 0, GINNEL_RESET_AUTO = 1 };

int ginnel_event_create(ginnel_segment *segment, const char *name, enum ginnel_reset reset,
                        ginnel_event **out);
int ginnel_event_open(ginnel_segment *segment, const char *name, ginnel_event **out);
int ginnel_event_open_or_create(ginnel_segment *segment, const char *name, enum ginnel_reset reset,
                                ginnel_event **out);
int ginnel_event_set(ginnel_event *event);
/* 1 where it was set, 0 where it was not. */
int ginnel_event_reset(ginnel_event *event);
/* Waits until it is set. */
int ginnel_event_wait(ginnel_event *event, int64_t time);
/* Not 0: it is set at the moment. */
int ginnel_event_is_set(const ginnel_event *event);
/* As ginnel_sender_fd: for a call that said GINNEL_EWOULDBLOCK. */
int ginnel_event_fd(ginnel_event *event);
void ginnel_event_close(ginnel_event *event);

/* ---- Barrier ---- */

typedef struct ginnel_barrier ginnel_barrier;

/* Each handle is one of the parties, 1 to 48, until it is closed. */
int ginnel_barrier_create(ginnel_segment *segment, const char *name, uint32_t parties,
                          ginnel_barrier **out);
int ginnel_barrier_open(ginnel_segment *segment, const char *name, ginnel_barrier **out);
int ginnel_barrier_open_or_create(ginnel_segment *segment, const char *name, uint32_t parties,
                                  ginnel_barrier **out);
/* Waits until all have come: 1 for the one that came last, 0 for the others. -1: this one has not
 * come; GINNEL_EBROKEN where one that takes part died before it came, GINNEL_ETIMEDOUT. */
int ginnel_barrier_wait(ginnel_barrier *barrier, int64_t time);
void ginnel_barrier_close(ginnel_barrier *barrier);

#ifdef __cplusplus
}
#endif

#endif
