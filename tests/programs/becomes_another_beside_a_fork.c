// As becomes_another: another thread forks meanwhile.
#define BESIDE_A_FORK 1
#include "becomes_another.c"
