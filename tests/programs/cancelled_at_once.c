// A thread that is to be cancelled is cancelled at its next send, receive or poll (pthreads(7), "Cancellation points") also where that need not wait, and then nothing was moved; but not
// in sendfile, which is none.
#include "check.h"
#include <sys/sendfile.h>

enum { MESSAGE = 700 };

static int ends[2], set, file;
static uint8_t text[MESSAGE];
static volatile bool got_through;

static struct iovec piece = {text, MESSAGE};
static struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};

static long by_send(void) { return send(ends[0], text, MESSAGE, 0); }
static long by_sendto(void) { return sendto(ends[0], text, MESSAGE, 0, NULL, 0); }
static long by_sendmsg(void) { return sendmsg(ends[0], &message, 0); }
static long by_write(void) { return write(ends[0], text, MESSAGE); }
static long by_writev(void) { return writev(ends[0], &piece, 1); }

static long by_recv(void) { return recv(ends[0], text, MESSAGE, 0); }
static long by_recvfrom(void) { return recvfrom(ends[0], text, MESSAGE, 0, NULL, NULL); }
static long by_recvmsg(void) { return recvmsg(ends[0], &message, 0); }
static long by_read(void) { return read(ends[0], text, MESSAGE); }
static long by_readv(void) { return readv(ends[0], &piece, 1); }

static long by_poll(void) { return poll(&(struct pollfd){ends[0], POLLIN, 0}, 1, PATIENCE); }
static long by_ppoll(void) { return ppoll(&(struct pollfd){ends[0], POLLIN, 0}, 1, NULL, NULL); }
static long by_select(void) {
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(ends[0], &readable);
    return select(ends[0] + 1, &readable, NULL, NULL, NULL);
}
static long by_pselect(void) {
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(ends[0], &readable);
    return pselect(ends[0] + 1, &readable, NULL, NULL, NULL, NULL);
}
static long by_epoll_wait(void) { return epoll_wait(set, &(struct epoll_event){0}, 1, PATIENCE); }
static long by_epoll_pwait(void) { return epoll_pwait(set, &(struct epoll_event){0}, 1, PATIENCE, NULL); }

static long by_sendfile(void) { return sendfile(ends[0], file, &(off_t){0}, MESSAGE); }

struct call {
    const char *name;
    long (*make)(void);
};

static const struct call sends[] = {{"send", by_send}, {"sendto", by_sendto}, {"sendmsg", by_sendmsg}, {"write", by_write}, {"writev", by_writev}};
static const struct call receives[] = {{"recv", by_recv}, {"recvfrom", by_recvfrom}, {"recvmsg", by_recvmsg}, {"read", by_read}, {"readv", by_readv}};
static const struct call waits[] = {{"poll", by_poll}, {"ppoll", by_ppoll}, {"select", by_select}, {"pselect", by_pselect}, {"epoll_wait", by_epoll_wait}, {"epoll_pwait", by_epoll_pwait}};

static void *cancels_itself(void *of) {
    const struct call *call = of;
    IS(pthread_cancel(pthread_self()), 0);
    IS(call->make(), MESSAGE);
    got_through = true;
    pthread_testcancel();
    return NULL;
}

static bool is_cancelled_in(const struct call *call) {
    pthread_t thread;
    got_through = false;
    IS(pthread_create(&thread, NULL, cancels_itself, (void *)call), 0);
    CHECK(joined(thread) == PTHREAD_CANCELED);
    return !got_through;
}

static void cancelled_in_each(const struct call *calls, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (is_cancelled_in(&calls[i])) continue;
        say("not in %s", calls[i].name);
        exit(1);
    }
    say("cancelled in %s and %zu others", calls[0].name, count - 1);
}

#define EACH(calls) cancelled_in_each(calls, sizeof calls / sizeof *calls)

int main(void) {
    pair_here(ends);
    CHECK((set = epoll_create1(0)) >= 0);
    IS(epoll_add(set, ends[0], EPOLLIN), 0);
    CHECK((file = memfd_create("page", 0)) >= 0);
    fill(text, 0, MESSAGE, 3);
    IS(write(file, text, MESSAGE), MESSAGE);
    EACH(sends);
    CHECK(!is_cancelled_in(&(struct call){"sendfile", by_sendfile}));
    get_pattern(ends[1], MESSAGE, 3);
    say("not in sendfile");
    put_pattern(ends[1], MESSAGE, 5);
    when_readable(ends[0]);
    EACH(receives);
    EACH(waits);
    get_pattern(ends[0], MESSAGE, 5);
    FAILS(recv(ends[1], text, MESSAGE, MSG_DONTWAIT), EAGAIN);
}
