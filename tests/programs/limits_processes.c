// A program lets its user have no more processes and threads, as HAProxy does once its own run, and uses its connections then. Each
// of its threads takes no_new_privs, the last one when no thread may begin any more.
#include "check.h"

#include <sys/prctl.h>
#include <sys/resource.h>

enum { LENGTH = 300000 };

static pthread_barrier_t limited;

static void no_privileges(void) { IS(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0); }

static void *late(void *none) {
    pthread_barrier_wait(&limited);
    no_privileges();
    return none;
}

static void no_more(void) {
    pthread_t thread;
    IS(pthread_barrier_init(&limited, NULL, 2), 0);
    IS(pthread_create(&thread, NULL, late, NULL), 0);
    no_privileges();
    IS(setrlimit(RLIMIT_NPROC, &(struct rlimit){0, 0}), 0);
    pthread_barrier_wait(&limited);
    joined(thread);
}

static void peer(int fd) {
    no_more();
    warm_up(fd, true);
    put_pattern(fd, LENGTH, 1);
    get_pattern(fd, LENGTH, 2);
}

static void *nothing(void *none) { return none; }

int main(void) {
    int fd = with_peer_and(peer, false);
    no_more();
    // (The limit is none for root.)
    pthread_t thread;
    int made = pthread_create(&thread, NULL, nothing, NULL);
    if (made == 0) joined(thread);
    say("one more thread: %s", made == 0 ? "begun" : strerror(made));
    warm_up(fd, false);
    get_pattern(fd, LENGTH, 1);
    put_pattern(fd, LENGTH, 2);
    peer_ends();
    say("carried on");
}
