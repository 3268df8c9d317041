// One thread ends the writing direction while another sends: what send said it took arrives, and then the end.
#include "check.h"
#include <pthread.h>

enum { TURNS = 300, MESSAGE = 64 };

static int writer;
static size_t sent;
static volatile bool going;

static void *send_on(void *unused) {
    char message[MESSAGE] = {0};
    for (ssize_t n; (n = send(writer, message, sizeof message, MSG_NOSIGNAL)) > 0; going = true) sent += (size_t)n;
    int why = errno;
    IS(why, EPIPE);
    return unused;
}

static void *read_on(void *fd) {
    char bytes[4096];
    size_t *all = calloc(1, sizeof *all);
    for (ssize_t n; (n = recv(*(int *)fd, bytes, sizeof bytes, 0)) != 0; *all += (size_t)n) CHECK(n > 0);
    return all;
}

int main(void) {
    struct sockaddr_in at;
    int listener = listen_on(&at);
    for (int turn = 0; turn < TURNS; turn++) {
        writer = connect_to(&at);
        int reader = accept_from(listener);
        for (int j = 0; j < 12; j++) put_pattern(writer, 16, j), get_pattern(reader, 16, j), put_pattern(reader, 16, j), get_pattern(writer, 16, j);
        pthread_t sends, reads;
        sent = 0, going = false;
        IS(pthread_create(&reads, NULL, read_on, &reader), 0);
        IS(pthread_create(&sends, NULL, send_on, NULL), 0);
        while (!going) sched_yield();
        for (volatile int pause = (turn * 7919) % 20000; pause > 0; pause--) {}
        IS(shutdown(writer, SHUT_WR), 0);
        size_t *arrived = NULL;
        IS(pthread_join(sends, NULL), 0);
        IS(pthread_join(reads, (void **)&arrived), 0);
        CHECK(arrived);
        IS(*arrived, sent);
        free(arrived);
        close(writer), close(reader);
    }
    say("%d turns", TURNS);
}
