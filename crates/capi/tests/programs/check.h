// What the programs here have in common. (objects.c stands alone: it is compiled elsewhere, too.)

#include <ginnel.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// Ends the program, with what the library says, where something is not so.
#define CHECK(is)                                                                           \
    do {                                                                                    \
        if (!(is)) {                                                                        \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #is, ginnel_errmsg());           \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)

#define SECOND INT64_C(1000000000)
