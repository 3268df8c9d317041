// A number closed and given to the next connection carries nothing over: no bytes, no readiness, no registration.
#include "check.h"

int main(void) {
    struct sockaddr_in at;
    int listener = listen_on(&at), set = epoll_create1(0), first = -1;
    for (int i = 0; i < 300; i++) {
        int a = connect_to(&at), b = accept_from(listener);
        if (first < 0) first = a;
        IS(a, first);
        IS(epolled(set, a, 0), 0);
        IS(polled(a, POLLIN, 0), 0);
        if (i % 2) IS(epoll_add(set, a, EPOLLIN | (i % 4 == 1 ? EPOLLET : 0u)), 0);
        for (int j = 0; j < 8; j++) put_pattern(a, 50, i + j), get_pattern(b, 50, i + j), put_pattern(b, 50, i + j), get_pattern(a, 50, i + j);
        put_pattern(a, 200, i);
        get_pattern(b, 200, i);
        put_pattern(b, 100, i);
        if (i % 2) IS(epolled(set, a, PATIENCE), EPOLLIN);
        get_pattern(a, i % 3 ? 100 : 50, i);  // at times with bytes unread
        close(a), close(b);
    }
    say("300 connections under one number");
}
