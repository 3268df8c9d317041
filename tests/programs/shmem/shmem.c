/* What the processing elements of an OpenSHMEM program do to each other, each answer checked: puts and gets of
 * many sizes, atomics, locks, waiting for a flag, collectives. Element 0 says "all well". */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 300000, TIMES = 200 };

static unsigned char from[MOST], into[MOST];
static long counter, flag, shared, sums[2], ones[2];
static long lock;
static long sync_[SHMEM_REDUCE_SYNC_SIZE], work[SHMEM_REDUCE_MIN_WRKDATA_SIZE];
static int me, all;

static void fail(const char *what, long at)
{
	fprintf(stderr, "element %d: %s (%ld)\n", me, what, at);
	shmem_global_exit(1);
}

static unsigned char byte_of(int element, int tag, size_t at)
{
	return (unsigned char)(at * 31 + (at >> 8) * 7 + (size_t)element * 13 + (size_t)tag);
}

static void check(const unsigned char *got, size_t n, int element, int tag)
{
	for (size_t i = 0; i < n; i++)
		if (got[i] != byte_of(element, tag, i))
			fail("a wrong byte", (long)i);
}

/* Into the next element's memory, out of it again, on the heap and in the program's data. */
static void puts_and_gets(void)
{
	static const size_t sizes[] = {1, 7, 8, 64, 1000, 4096, 16385, 65536, MOST};
	int next = (me + 1) % all, before = (me + all - 1) % all;
	unsigned char *heap = shmem_malloc(MOST), *got = malloc(MOST);
	if (!heap || !got)
		fail("no memory", 0);
	for (int tag = 0; tag < (int)(sizeof(sizes) / sizeof(sizes[0])); tag++) {
		size_t n = sizes[tag];
		for (size_t i = 0; i < n; i++)
			from[i] = byte_of(me, tag, i);
		shmem_barrier_all();
		shmem_putmem(heap, from, n, next);
		shmem_putmem(into, from, n, next);
		shmem_barrier_all();
		check(heap, n, before, tag);
		check(into, n, before, tag);
		shmem_getmem(got, heap, n, next);
		check(got, n, me, tag);
		shmem_getmem(got, from, n, before);
		check(got, n, before, tag);
		/* Others may be reading what is overwritten next. */
		shmem_barrier_all();
	}
	shmem_free(heap);
	free(got);
}

static void atomics(void)
{
	for (int i = 0; i < TIMES; i++) {
		shmem_long_atomic_inc(&counter, 0);
		shmem_long_atomic_fetch_add(&counter, 2, 0);
	}
	long mine = -1;
	if (shmem_long_atomic_compare_swap(&flag, -1, 5, me) != 0)
		fail("a swap of what was not there", flag);
	shmem_barrier_all();
	if (me == 0)
		mine = shmem_long_atomic_swap(&flag, 9, all - 1);
	shmem_barrier_all();
	if (me == 0 && (counter != 3L * TIMES * all || mine != 0))
		fail("atomics", counter);
	if (me == all - 1 && flag != 9)
		fail("a swap", flag);
	/* A lock, without which increments would be lost. */
	for (int i = 0; i < TIMES / 4; i++) {
		shmem_set_lock(&lock);
		long now = shmem_long_g(&shared, 0);
		shmem_long_p(&shared, now + 1, 0);
		shmem_quiet();
		shmem_clear_lock(&lock);
	}
	shmem_barrier_all();
	if (me == 0 && shared != TIMES / 4 * all)
		fail("a lock that two had", shared);
}

int main(void)
{
	static long word;
	shmem_init();
	me = shmem_my_pe();
	all = shmem_n_pes();
	for (int i = 0; i < SHMEM_REDUCE_SYNC_SIZE; i++)
		sync_[i] = SHMEM_SYNC_VALUE;
	shmem_barrier_all();
	puts_and_gets();
	atomics();
	/* Data, then the flag that says so. */
	if (me == 0) {
		for (int element = 1; element < all; element++) {
			shmem_long_p(&sums[1], 42, element);
			shmem_fence();
			shmem_long_p(&word, 1, element);
		}
	} else {
		shmem_long_wait_until(&word, SHMEM_CMP_EQ, 1);
		if (sums[1] != 42)
			fail("a flag passed its data", sums[1]);
	}
	ones[0] = me + 1;
	shmem_barrier_all();
	shmem_long_sum_to_all(sums, ones, 1, 0, 0, all, work, sync_);
	if (sums[0] != (long)all * (all + 1) / 2)
		fail("a sum", sums[0]);
	shmem_barrier_all();
	if (me == 0)
		printf("all well\n");
	shmem_finalize();
	return 0;
}
