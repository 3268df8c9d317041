// 1000 connections that have been used are open when the program ends.
#include "check.h"

enum { MANY = 1000 };

int main(void) {
    struct sockaddr_in at;
    struct rlimit files = {4096, 4096};
    struct rlimit now;
    IS(getrlimit(RLIMIT_NOFILE, &now), 0);
    if (now.rlim_cur < 4096) CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    int listener = listen_on(&at);
    for (int i = 0; i < MANY; i++) {
        int a = connect_to(&at), b = accept_from(listener);
        for (int j = 0; j < 12; j++) put_pattern(a, 16, j), get_pattern(b, 16, j), put_pattern(b, 16, j), get_pattern(a, 16, j);
    }
    say("%d connections", MANY);
}
