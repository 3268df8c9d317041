// The objects by which processes wait for each other, used by a parent and a child that dies.

#include "check.h"
#include <ginnel.h>

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static ginnel_segment *segment_of(void) {
    ginnel_options options = {.size = sizeof options, .segment_size = 32 << 20};
    ginnel_segment *segment;
    CHECK(ginnel_open("waiting", &options, &segment) == 0);
    return segment;
}

// Runs a part of a program in a child, which may die by abort().
static int child(void (*part)(ginnel_segment *)) {
    pid_t pid = fork();
    if (pid == 0) {
        part(segment_of());
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFSIGNALED(status) ? WTERMSIG(status) == SIGABRT : WEXITSTATUS(status) == 0);
    return status;
}

static void dies_with_permits(ginnel_segment *segment) {
    ginnel_semaphore *semaphore;
    CHECK(ginnel_semaphore_open(segment, "two", &semaphore) == 0);
    CHECK(ginnel_semaphore_acquire(semaphore, 0) == 0);
    CHECK(ginnel_semaphore_acquire(semaphore, GINNEL_FOREVER) == 0);
    CHECK(ginnel_semaphore_acquire(semaphore, 0) == -1 && ginnel_errcode() == GINNEL_EWOULDBLOCK);
    CHECK(ginnel_semaphore_acquire(semaphore, 1000) == -1 && ginnel_errcode() == GINNEL_ETIMEDOUT);
    abort();
}

static void semaphores(ginnel_segment *segment) {
    ginnel_semaphore *semaphore, *again;
    CHECK(ginnel_semaphore_create(segment, "two", 2, 3, &semaphore) == 0);
    CHECK(ginnel_semaphore_available(semaphore) == 2 && ginnel_semaphore_fd(semaphore) >= 0);
    child(dies_with_permits);
    CHECK(ginnel_semaphore_acquire(semaphore, SECOND) == 0);
    CHECK(ginnel_semaphore_acquire(semaphore, SECOND) == 0);
    CHECK(ginnel_semaphore_add(semaphore, 2) == -1 && ginnel_errcode() == GINNEL_EFULL);
    CHECK(ginnel_semaphore_add(semaphore, 1) == 0 && ginnel_semaphore_available(semaphore) == 1);
    CHECK(ginnel_semaphore_release(semaphore) == 0 && ginnel_semaphore_use_up(semaphore) == 0);
    CHECK(ginnel_semaphore_release(semaphore) == -1 && ginnel_errcode() == GINNEL_EINVALID);
    CHECK(ginnel_semaphore_open_or_create(segment, "two", 0, 4, &again) == -1);
    CHECK(ginnel_errcode() == GINNEL_ESHAPE);
    CHECK(ginnel_semaphore_open_or_create(segment, "two", 0, 3, &again) == 0);
    CHECK(ginnel_semaphore_acquire(again, 0) == 0 && ginnel_semaphore_available(again) == 1);
    ginnel_semaphore_close(again);
    CHECK(ginnel_semaphore_available(semaphore) == 2);
    ginnel_semaphore_close(semaphore);
}

static void sets(ginnel_segment *segment) {
    ginnel_event *go, *went;
    CHECK(ginnel_event_open(segment, "go", &go) == 0);
    CHECK(ginnel_event_open(segment, "went", &went) == 0);
    CHECK(ginnel_event_wait(go, GINNEL_FOREVER) == 0);
    CHECK(ginnel_event_set(went) == 0);
    abort();
}

static void events(ginnel_segment *segment) {
    ginnel_event *go, *went;
    CHECK(ginnel_event_create(segment, "go", GINNEL_RESET_MANUAL, &go) == 0);
    CHECK(ginnel_event_open_or_create(segment, "went", GINNEL_RESET_AUTO, &went) == 0);
    CHECK(ginnel_event_wait(go, 0) == -1 && ginnel_errcode() == GINNEL_EWOULDBLOCK);
    CHECK(ginnel_event_wait(went, 1000) == -1 && ginnel_errcode() == GINNEL_ETIMEDOUT);
    CHECK(ginnel_event_set(go) == 0 && ginnel_event_is_set(go));
    struct pollfd told = {ginnel_event_fd(went), POLLIN, 0};
    CHECK(told.fd >= 0 && ginnel_event_wait(went, 0) == -1);
    child(sets);
    CHECK(poll(&told, 1, 60000) == 1);
    CHECK(ginnel_event_wait(went, SECOND) == 0 && !ginnel_event_is_set(went));
    CHECK(ginnel_event_reset(go) == 1 && ginnel_event_reset(go) == 0);
    ginnel_event_close(went);
    CHECK(ginnel_event_open_or_create(segment, "went", GINNEL_RESET_MANUAL, &went) == -1);
    CHECK(ginnel_errcode() == GINNEL_ESHAPE);
    ginnel_event_close(go);
}

static void reads_beside(ginnel_segment *segment) {
    ginnel_rwlock *lock;
    CHECK(ginnel_rwlock_open(segment, "lock", &lock) == 0);
    CHECK(ginnel_rwlock_write(lock, 0) == -1 && ginnel_errcode() == GINNEL_EWOULDBLOCK);
    CHECK(ginnel_rwlock_write(lock, 1000) == -1 && ginnel_errcode() == GINNEL_ETIMEDOUT);
    CHECK(ginnel_rwlock_read(lock, GINNEL_FOREVER) == 0);
    abort();
}

static void dies_writing(ginnel_segment *segment) {
    ginnel_rwlock *lock;
    CHECK(ginnel_rwlock_open(segment, "lock", &lock) == 0);
    CHECK(ginnel_rwlock_write(lock, SECOND) == 0);
    abort();
}

static void reader_writer_locks(ginnel_segment *segment) {
    ginnel_rwlock *lock;
    CHECK(ginnel_rwlock_create(segment, "lock", &lock) == 0);
    CHECK(ginnel_rwlock_read(lock, 0) == 0);
    CHECK(ginnel_rwlock_read(lock, 0) == -1 && ginnel_errcode() == GINNEL_EDEADLOCK);
    CHECK(ginnel_rwlock_mark_consistent(lock) == -1);
    child(reads_beside);
    CHECK(ginnel_rwlock_unlock(lock) == 0 && ginnel_rwlock_unlock(lock) == -1);
    CHECK(ginnel_rwlock_write(lock, SECOND) == 0 && ginnel_rwlock_unlock(lock) == 0);
    child(dies_writing);
    CHECK(ginnel_rwlock_read(lock, SECOND) == 1 && ginnel_rwlock_unlock(lock) == 0);
    CHECK(ginnel_rwlock_write(lock, 0) == 1 && ginnel_rwlock_mark_consistent(lock) == 0);
    CHECK(ginnel_rwlock_unlock(lock) == 0);
    CHECK(ginnel_rwlock_read(lock, GINNEL_FOREVER) == 0 && ginnel_rwlock_unlock(lock) == 0);
    ginnel_rwlock_close(lock);
}

static void comes(ginnel_segment *segment) {
    ginnel_barrier *barrier;
    CHECK(ginnel_barrier_open(segment, "barrier", &barrier) == 0);
    CHECK(ginnel_barrier_wait(barrier, GINNEL_FOREVER) >= 0);
    abort();
}

static void barriers(ginnel_segment *segment) {
    ginnel_barrier *mine, *other;
    CHECK(ginnel_barrier_create(segment, "barrier", 2, &mine) == 0);
    CHECK(ginnel_barrier_open_or_create(segment, "barrier", 3, &other) == -1);
    CHECK(ginnel_errcode() == GINNEL_ESHAPE);
    CHECK(ginnel_barrier_wait(mine, 0) == -1 && ginnel_errcode() == GINNEL_ETIMEDOUT);
    pid_t pid = fork();
    if (pid == 0) {
        comes(segment_of());
    }
    // One of the two comes last; which, is not said.
    int last = ginnel_barrier_wait(mine, 60 * SECOND);
    CHECK(last == 0 || last == 1);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
    CHECK(ginnel_barrier_wait(mine, 60 * SECOND) == -1 && ginnel_errcode() == GINNEL_EBROKEN);
    CHECK(ginnel_barrier_open(segment, "barrier", &other) == 0);
    CHECK(ginnel_barrier_wait(mine, 1000) == -1 && ginnel_errcode() == GINNEL_ETIMEDOUT);
    ginnel_barrier_close(other);
    ginnel_barrier_close(mine);
}

int main(void) {
    ginnel_segment *segment = segment_of();
    semaphores(segment);
    events(segment);
    reader_writer_locks(segment);
    barriers(segment);
    ginnel_close(segment);
    return 0;
}
