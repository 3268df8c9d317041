// 2000 connections, one after the other, each with one exchange or several: no descriptor is left over.
#include "check.h"

int main(void) {
    struct sockaddr_in at;
    int listener = listen_on(&at), before = 0;
    for (int i = 0; i < 2000; i++) {
        if (i == 200) before = open_descriptors();
        int a = connect_to(&at), b = accept_from(listener), rounds = i % 5 == 0 ? 20 : 1;
        for (int j = 0; j < rounds; j++) put_pattern(a, 100, i), get_pattern(b, 100, i), put_pattern(b, 3000, i), get_pattern(a, 3000, i);
        close(i % 2 ? a : b);
        IS(recv(i % 2 ? b : a, (char[1]){0}, 1, 0), 0);
        close(i % 2 ? b : a);
    }
    CHECK(open_descriptors() <= before + 1);
    say("2000 connections");
}
