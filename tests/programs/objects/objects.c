// Two of Ginnel's libraries in one process: connections carried by the one that is preloaded, named
// objects by the one that the program is linked with, in one segment. A child that is killed, and one
// that becomes another program, are dead to whoever waits for their locks; its connection ends, or
// goes on, as the kernel has it. Neither library takes for dead what is the other's.
#include "check.h"
#include <ginnel.h>

enum { EACH = 300 };

#define WELL(call) /* its errors are the library's own */                                                           \
    do {                                                                                                            \
        int said_ = (call);                                                                                         \
        if (said_ != 0) {                                                                                           \
            fprintf(stderr, "%s:%d: pid %d: %s is %d (%s)\n", __FILE__, __LINE__, getpid(), #call, said_,           \
                    said_ < 0 ? ginnel_errmsg() : "");                                                              \
            _exit(1);                                                                                               \
        }                                                                                                           \
    } while (0)

static const int64_t LONG = INT64_C(60000000000);

struct objects {
    ginnel_segment *segment;
    ginnel_mutex *mutex;
    ginnel_sender *sender;
};

static struct objects opened(void) {
    struct objects objects;
    WELL(ginnel_open(NULL, NULL, &objects.segment));
    WELL(ginnel_mutex_open(objects.segment, "lock", &objects.mutex));
    WELL(ginnel_sender_open(objects.segment, "numbers", GINNEL_WAIT, &objects.sender));
    return objects;
}

// One number by the connection, the next by the queue, and so on.
static void sends(int fd, ginnel_sender *sender) {
    for (int i = 0; i < EACH; i++) {
        put_pattern(fd, 16, i);
        WELL(ginnel_sender_send(sender, &i, sizeof i, LONG));
    }
}

static void receives(int fd, ginnel_receiver *receiver) {
    for (int i = 0; i < EACH; i++) {
        get_pattern(fd, 16, i);
        ginnel_message message;
        WELL(ginnel_receiver_take(receiver, LONG, &message));
        IS(message.len, sizeof i);
        IS(*(const int *)message.data, i);
        WELL(ginnel_message_drop(&message));
    }
}

static void holds_the_lock(int fd) {
    struct objects objects = opened();
    sends(fd, objects.sender);
    WELL(ginnel_mutex_lock(objects.mutex, LONG));
    put_all(fd, "h", 1);
}

// The other has died with the lock: that is told once, and all is well then.
static void lock_of_the_dead(ginnel_mutex *mutex) {
    IS(ginnel_mutex_lock(mutex, LONG), 1);
    WELL(ginnel_mutex_mark_consistent(mutex));
    WELL(ginnel_mutex_unlock(mutex));
    WELL(ginnel_mutex_lock(mutex, LONG));
    WELL(ginnel_mutex_unlock(mutex));
}

static void is_killed(int fd) {
    holds_the_lock(fd);
    pause();
}

static void becomes_another(int fd) {
    holds_the_lock(fd);
    char number[16], way[16];
    snprintf(number, sizeof number, "%d", fd), snprintf(way, sizeof way, "%d", side);
    execl("/proc/self/exe", "objects", "again", number, way, NULL);
    _exit(9);
}

int main(int argc, char **argv) {
    if (argc == 4) {
        int fd = atoi(argv[2]);
        side = atoi(argv[3]);
        tell(), hear();
        struct objects objects = opened();
        sends(fd, objects.sender);
        warm_up(fd, true);
        while (read(side, &(char){0}, 1) > 0) {}
        return 0;
    }
    ginnel_segment *segment;
    ginnel_mutex *mutex;
    ginnel_receiver *receiver;
    ginnel_queue_options options = {.size = sizeof options, .message_size = 64, .capacity = 8};
    char byte;
    WELL(ginnel_open(NULL, NULL, &segment));
    WELL(ginnel_mutex_create(segment, "lock", &mutex));
    WELL(ginnel_queue_create(segment, "numbers", &options));
    WELL(ginnel_receiver_open(segment, "numbers", &receiver));
    int kept[2];
    pair_here(kept);

    int fd = with_peer(is_killed);
    receives(fd, receiver);
    get_all(fd, &byte, 1);
    IS(kill(other, SIGKILL), 0);
    IS(waitpid(other, NULL, 0), other);
    lock_of_the_dead(mutex);
    IS(recv(fd, &byte, 1, 0), 0);
    close(fd), close(side);
    say("one was killed");

    fd = with_peer(becomes_another);
    receives(fd, receiver);
    get_all(fd, &byte, 1);
    hear();
    lock_of_the_dead(mutex);
    tell();
    receives(fd, receiver);
    warm_up(fd, false);
    peer_ends();
    close(fd);
    say("one became another");

    // A child has its parent's connections, and none of its handles.
    pid_t child = fork();
    if (child == 0) {
        IS(ginnel_mutex_lock(mutex, 0), -1);
        IS(ginnel_errcode(), GINNEL_EFORKED);
        ginnel_mutex_close(mutex);
        put_pattern(kept[0], 5000, 7);
        exit(0);
    }
    get_pattern(kept[1], 5000, 7);
    IS(ended(child), 0);
    warm_pair(kept[0], kept[1]);
    WELL(ginnel_mutex_lock(mutex, LONG));
    WELL(ginnel_mutex_unlock(mutex));
    say("a child took nothing along");
    WELL(ginnel_receiver_close(receiver));
    ginnel_mutex_close(mutex);
    ginnel_close(segment);
    return 0;
}
