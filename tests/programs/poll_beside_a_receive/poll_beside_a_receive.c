// One thread polls a connection, another receives from it; both sleep, perhaps since before the connection moved to another carrier, and the receive may take what both were woken for. Then two bytes come: the receive takes one, and poll tells of the other.
#include "../include/check.h"

enum { CONNECTIONS = 100, TURNS = 3, BEFORE = 3, LAST = 'L' };

static int ends[2];
static pthread_barrier_t begin, end;

static void *polls(void *none) {
    for (int i = 0; i < CONNECTIONS * TURNS; i++) {
        char byte = 0;
        pthread_barrier_wait(&begin);
        do when_readable(ends[0]);
        while (recv(ends[0], &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 1 || byte != LAST);
        pthread_barrier_wait(&end);
    }
    return none;
}

static void *receives(void *none) {
    for (int i = 0; i < CONNECTIONS * TURNS; i++) {
        char byte = 0;
        pthread_barrier_wait(&begin);
        while (byte != LAST) IS(recv(ends[0], &byte, 1, 0), 1);
        pthread_barrier_wait(&end);
    }
    return none;
}

int main(void) {
    pthread_t threads[2];
    pthread_barrier_init(&begin, NULL, 3), pthread_barrier_init(&end, NULL, 3);
    IS(pthread_create(&threads[0], NULL, polls, NULL), 0);
    IS(pthread_create(&threads[1], NULL, receives, NULL), 0);
    for (int i = 0; i < CONNECTIONS * TURNS; i++) {
        if (i % TURNS == 0) pair_here(ends);
        pthread_barrier_wait(&begin);
        for (int n = 0; n < BEFORE; n++) {
            usleep((useconds_t)(i * 37 % 100));
            put_all(ends[1], "n", 1);
        }
        if (i % 2) usleep((useconds_t)(i * 53 % 100));
        put_all(ends[1], "LL", 2);
        pthread_barrier_wait(&end);
        IS(recv(ends[0], (char[1]){0}, 1, 0), 1);
        if (i % TURNS == TURNS - 1) close(ends[0]), close(ends[1]);
    }
    for (int i = 0; i < 2; i++) joined(threads[i]);
    say("both were told");
}
