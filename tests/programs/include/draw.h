// Numbers that all who begin with the same state draw alike (splitmix64: Steele, Lea, Flood, 2014).
#pragma once
#include <stdint.h>

typedef uint64_t u64;

static inline u64 mix(u64 x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/* A number below n; all ranks draw the same from the same state. */
static inline u64 draw(u64 *state, u64 n)
{
	*state = mix(*state);
	return (*state >> 11) % n;
}
