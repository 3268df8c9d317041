// TCP_CORK around each answer, as web servers do: what was corked arrives after the uncorking, the option reads as it was set, and a cork that is in
// when the connection leaves its ring is in the kernel too.
#include "check.h"
#include "raw.h"
#include <sys/syscall.h>

static int a, b;

static void cork(int on) { IS(setsockopt(a, IPPROTO_TCP, TCP_CORK, &on, sizeof on), 0); }

static int is_corked(void) {
    int on = -1;
    socklen_t len = sizeof on;
    IS(getsockopt(a, IPPROTO_TCP, TCP_CORK, &on, &len), 0);
    return on;
}

// What the kernel thinks.
static int kernel_is_corked(void) {
    int on = -1;
    socklen_t len = sizeof on;
    IS(raw_call(SYS_getsockopt, a, IPPROTO_TCP, TCP_CORK, (long)&on, (long)&len), 0);
    return on;
}

static void exchange(int salt) {
    put_pattern(b, 10, salt), get_pattern(a, 10, salt);
    cork(1);
    put_pattern(a, 100, salt);
    IS(is_corked(), 1);
    put_pattern(a, 1000, salt + 1);
    cork(0);
    IS(is_corked(), 0);
    get_pattern(b, 100, salt), get_pattern(b, 1000, salt + 1);
}

int main(void) {
    int ends[2], least = 2;
    pair_here(ends);
    a = ends[0], b = ends[1];
    for (int i = 0; i < 100; i++) exchange(i);
    FAILS(setsockopt(a, IPPROTO_TCP, TCP_CORK, &least, 1), EINVAL);
    say("corked and uncorked");
    cork(1);
    // An option that no ring can honour.
    IS(setsockopt(a, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least), 0);
    IS(kernel_is_corked(), 1);
    put_pattern(a, 100, 7);
    cork(0);
    IS(kernel_is_corked(), 0);
    get_pattern(b, 100, 7);
    say("also where TCP carries again");
    // Corked before there is a ring, uncorked in it.
    struct sockaddr_in at;
    int listener = listen_on(&at);
    a = connect_to(&at), b = accept_from(listener);
    cork(1);
    put_pattern(a, 100, 9);
    cork(0);
    get_pattern(b, 100, 9);
    cork(1);
    for (int i = 0; i < 5; i++) {
        // A whole segment goes although it is corked; both ends count once all has come.
        put_pattern(b, 16, i), get_pattern(a, 16, i);
        poll(NULL, 0, 1);
    }
    cork(0);
    IS(kernel_is_corked(), 0);
    for (int i = 0; i < 100; i++) exchange(i);
    say("also across an upgrade");
}
