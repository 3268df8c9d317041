// A thread that is to be cancelled and closes a connection is cancelled before anything of it is closed: what its cleanup handler says arrives, and a fork is as quick as before.
#include "check.h"

static int ends[2];

static void says_goodbye(void *none) {
    (void)none;
    IS(send(ends[0], "bye", 3, 0), 3);
    IS(close(ends[0]), 0);
}

static void *closes(void *none) {
    pthread_cleanup_push(says_goodbye, NULL);
    IS(pthread_cancel(pthread_self()), 0);
    close(ends[0]);
    pthread_cleanup_pop(0);
    return none;
}

int main(void) {
    for (int turn = 0; turn < 20; turn++) {
        pthread_t thread;
        void *result;
        char text[4];
        pair_here(ends);
        IS(pthread_create(&thread, NULL, closes, NULL), 0);
        IS(pthread_join(thread, &result), 0);
        CHECK(result == PTHREAD_CANCELED);
        IS(recv(ends[1], text, 3, MSG_WAITALL), 3);
        CHECK(memcmp(text, "bye", 3) == 0);
        IS(recv(ends[1], text, 1, 0), 0);
        close(ends[1]);
    }
    int64_t begin = now_ms();
    for (int i = 0; i < 50; i++) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        IS(ended(child), 0);
    }
    CHECK(now_ms() - begin < PATIENCE / 2);
    say("closed once, and whole");
}
