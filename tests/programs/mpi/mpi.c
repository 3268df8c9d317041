/* What the ranks of an MPI program do to each other, each answer checked.
 *
 *   mpi check      messages of all sizes both ways, any source, probe, cancel, requests in odd orders,
 *                  collectives; says "all well" on rank 0
 *   mpi wait       rank 0 says "ready" once all are there, then everybody waits for everybody, for ever
 *   mpi oneside    put, get, accumulate, fetch-and-op, compare-and-swap; says "all well" on rank 0
 *   mpi noswap     the same without compare-and-swap, in which osc/rdma of Open MPI 4.1.4 crashes
 */
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;

static void fail(const char *what, long at)
{
	fprintf(stderr, "rank %d: %s (%ld)\n", rank, what, at);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static unsigned char byte_of(int from, int tag, size_t at)
{
	return (unsigned char)(at * 31 + (at >> 8) * 7 + (size_t)from * 13 + (size_t)tag);
}

static void fill(unsigned char *to, size_t n, int from, int tag)
{
	for (size_t i = 0; i < n; i++)
		to[i] = byte_of(from, tag, i);
}

static void check(const unsigned char *got, size_t n, int from, int tag)
{
	for (size_t i = 0; i < n; i++)
		if (got[i] != byte_of(from, tag, i))
			fail("a wrong byte", (long)i);
}

/* Every size that a transport treats in another way, and its neighbours. */
static const size_t sizes[] = {0, 1, 7, 31, 32, 33, 64, 100, 1000, 4064, 4096, 8191, 8192, 8193, 16384, 16385,
			       65535, 65536, 65537, 200000, 1 << 20, (1 << 20) + 1, 5000000};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* Everybody sends to everybody at once, and takes in the opposite order. */
static void crossing(void)
{
	for (size_t s = 0; s < SIZES; s++) {
		size_t n = sizes[s];
		unsigned char **out = calloc((size_t)size, sizeof(*out)), **in = calloc((size_t)size, sizeof(*in));
		MPI_Request *all = calloc(2 * (size_t)size, sizeof(*all));
		for (int peer = 0; peer < size; peer++) {
			out[peer] = malloc(n + 1);
			in[peer] = malloc(n + 1);
			fill(out[peer], n, rank, peer);
			MPI_Isend(out[peer], (int)n, MPI_BYTE, peer, (int)s, MPI_COMM_WORLD, &all[peer]);
		}
		/* On odd ranks the messages are there before anybody asks for them. */
		if (rank % 2)
			usleep(1000);
		for (int peer = size - 1; peer >= 0; peer--)
			MPI_Irecv(in[peer], (int)n, MPI_BYTE, peer, (int)s, MPI_COMM_WORLD, &all[size + peer]);
		MPI_Waitall(2 * size, all, MPI_STATUSES_IGNORE);
		for (int peer = 0; peer < size; peer++) {
			check(in[peer], n, peer, rank);
			free(out[peer]);
			free(in[peer]);
		}
		free(out);
		free(in);
		free(all);
	}
}

/* A flood that nobody asked for yet, taken by tag from the last to the first; large ones in between. */
static void unexpected(void)
{
	enum { MANY = 300 };
	unsigned char *some = malloc(100000);
	if (rank == 0) {
		for (int i = 0; i < MANY * (size - 1); i++) {
			MPI_Status status;
			int n;
			MPI_Probe(MPI_ANY_SOURCE, MANY - 1 - i / (size - 1), MPI_COMM_WORLD, &status);
			MPI_Get_count(&status, MPI_BYTE, &n);
			MPI_Recv(some, n, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
			if (n != (status.MPI_TAG % 50 == 0 ? 100000 : status.MPI_TAG))
				fail("a wrong length", n);
			check(some, (size_t)n, status.MPI_SOURCE, status.MPI_TAG);
		}
	} else {
		MPI_Request all[MANY];
		unsigned char **out = calloc(MANY, sizeof(*out));
		for (int tag = 0; tag < MANY; tag++) {
			size_t n = tag % 50 == 0 ? 100000 : (size_t)tag;
			out[tag] = malloc(n + 1);
			fill(out[tag], n, rank, tag);
			MPI_Isend(out[tag], (int)n, MPI_BYTE, 0, tag, MPI_COMM_WORLD, &all[tag]);
		}
		MPI_Waitall(MANY, all, MPI_STATUSES_IGNORE);
		for (int tag = 0; tag < MANY; tag++)
			free(out[tag]);
		free(out);
	}
	free(some);
}

/* Order, synchronous mode, matched probe, cancel, a message that is longer than what is asked for. */
static void details(void)
{
	int next = (rank + 1) % size, before = (rank + size - 1) % size, flag;
	MPI_Request request, all[100];
	MPI_Status status;
	int in[100], out[100], many = 0;
	for (int i = 0; i < 100; i++) {
		out[i] = i;
		MPI_Isend(&out[i], 1, MPI_INT, next, 5, MPI_COMM_WORLD, &all[i]);
	}
	for (int i = 0; i < 100; i++) {
		MPI_Recv(&in[i], 1, MPI_INT, before, 5, MPI_COMM_WORLD, &status);
		if (in[i] != i)
			fail("messages passed each other", i);
	}
	MPI_Waitall(100, all, MPI_STATUSES_IGNORE);

	/* By MPI_Recv: mtl/ofi of Open MPI 4.1.4 does not tell the sender where it was matched by MPI_Mprobe. */
	MPI_Issend(out, 100, MPI_INT, next, 6, MPI_COMM_WORLD, &request);
	usleep(2000);
	MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
	MPI_Barrier(MPI_COMM_WORLD);
	if (flag)
		fail("a synchronous send ended before its receive", 0);
	MPI_Recv(in, 100, MPI_INT, before, 6, MPI_COMM_WORLD, &status);
	MPI_Wait(&request, MPI_STATUS_IGNORE);

	MPI_Message message;
	MPI_Isend(out, 100, MPI_INT, next, 8, MPI_COMM_WORLD, &request);
	MPI_Mprobe(before, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status);
	MPI_Get_count(&status, MPI_INT, &many);
	MPI_Mrecv(in, 100, MPI_INT, &message, &status);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	if (many != 100 || memcmp(in, out, sizeof(in)))
		fail("a matched probe went wrong", many);

	MPI_Irecv(in, 1, MPI_INT, before, 999, MPI_COMM_WORLD, &request);
	MPI_Cancel(&request);
	MPI_Wait(&request, &status);
	MPI_Test_cancelled(&status, &flag);
	if (!flag)
		fail("a receive was not cancelled", 0);

	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	/* Not of a large one: Open MPI 4.1.4's own ob1 writes that past the end of what it is to be received in. */
	MPI_Isend(out, 100, MPI_INT, next, 7, MPI_COMM_WORLD, &request);
	int said = MPI_Recv(in, 50, MPI_INT, before, 7, MPI_COMM_WORLD, &status), class = 0;
	if (said)
		MPI_Error_class(said, &class);
	if (class != MPI_ERR_TRUNCATE)
		fail("a message was cut and nobody told", class);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

static void together(void)
{
	enum { N = 50000 };
	double *mine = malloc(N * sizeof(*mine)), *sum = malloc(N * sizeof(*sum));
	int *out = malloc((size_t)size * 1000 * sizeof(*out)), *in = malloc((size_t)size * 1000 * sizeof(*in));
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < N; i++)
			mine[i] = rank + i;
		MPI_Allreduce(mine, sum, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		for (int i = 0; i < N; i++)
			if (sum[i] != size * (size - 1) / 2.0 + (double)size * i)
				fail("a wrong sum", i);
		for (int i = 0; i < size * 1000; i++)
			out[i] = rank * 1000000 + i;
		MPI_Alltoall(out, 1000, MPI_INT, in, 1000, MPI_INT, MPI_COMM_WORLD);
		for (int i = 0; i < size * 1000; i++)
			if (in[i] != i / 1000 * 1000000 + rank * 1000 + i % 1000)
				fail("a wrong piece", i);
		MPI_Bcast(mine, N, MPI_DOUBLE, round % size, MPI_COMM_WORLD);
		if (mine[7] != round % size + 7)
			fail("a wrong broadcast", round);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	free(mine);
	free(sum);
	free(out);
	free(in);
}

static void oneside(int swaps)
{
	enum { N = 30000, ROUNDS = 200 };
	long *window;
	MPI_Win win;
	int next = (rank + 1) % size, before = (rank + size - 1) % size;
	MPI_Win_allocate(N * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
	long *own = malloc(N * sizeof(*own));
	MPI_Win_fence(0, win);
	for (int i = 0; i < N; i++)
		own[i] = rank * 1000000L + i;
	MPI_Put(own, N, MPI_LONG, next, 0, N, MPI_LONG, win);
	MPI_Win_fence(0, win);
	for (int i = 0; i < N; i++)
		if (window[i] != before * 1000000L + i)
			fail("a wrong put", i);
	MPI_Win_fence(0, win);
	MPI_Get(own, N, MPI_LONG, next, 0, N, MPI_LONG, win);
	MPI_Win_fence(0, win);
	for (int i = 0; i < N; i++)
		if (own[i] != rank * 1000000L + i)
			fail("a wrong get", i);
	memset(window, 0, N * sizeof(*window));
	MPI_Win_fence(0, win);
	for (int peer = 0; peer < size; peer++)
		MPI_Accumulate(own, N, MPI_LONG, peer, 0, N, MPI_LONG, MPI_SUM, win);
	MPI_Win_fence(0, win);
	for (int i = 0; i < N; i++)
		if (window[i] != 1000000L * size * (size - 1) / 2 + (long)size * i)
			fail("a wrong accumulate", i);
	window[0] = window[1] = 0;
	MPI_Win_fence(0, win);
	MPI_Win_lock_all(0, win);
	for (long i = 0, one = 1, old; i < ROUNDS; i++) {
		MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, 0, MPI_SUM, win);
		MPI_Win_flush(0, win);
		if (!swaps)
			continue;
		for (;;) {
			long seen, now = rank + 1, free = 0;
			MPI_Compare_and_swap(&now, &free, &seen, MPI_LONG, 0, 1, win);
			MPI_Win_flush(0, win);
			if (seen == 0)
				break;
		}
		long zero = 0, mine;
		MPI_Fetch_and_op(&zero, &mine, MPI_LONG, 0, 1, MPI_REPLACE, win);
		MPI_Win_flush(0, win);
		if (mine != rank + 1)
			fail("a lock was held by two", mine);
	}
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_fence(0, win);
	if (rank == 0 && window[0] != (long)ROUNDS * size)
		fail("a wrong count", window[0]);
	free(own);
	MPI_Win_free(&win);
}

/* What is done to a rank's window while that rank calls no MPI: it looks at its memory until all has come. Without
 * the transport's help its owner's calls would be waited for, and the owner waits for the last word. */
static void unhelped(void)
{
	enum { N = 16, ROUNDS = 300, LAST = N };
	double *window, ones[N], seen[N];
	MPI_Win win;
	MPI_Win_allocate((N + 1) * sizeof(double), sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
	memset(window, 0, (N + 1) * sizeof(*window));
	for (int i = 0; i < N; i++)
		ones[i] = 1;
	MPI_Win_lock_all(0, win);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		while (((volatile double *)window)[LAST] != size - 1)
			sched_yield();
	} else {
		for (int i = 0; i < ROUNDS; i++) {
			MPI_Accumulate(ones, N, MPI_DOUBLE, 0, 0, N, MPI_DOUBLE, MPI_SUM, win);
			MPI_Get_accumulate(NULL, 0, MPI_DOUBLE, seen, N, MPI_DOUBLE, 0, 0, N, MPI_DOUBLE, MPI_NO_OP, win);
			MPI_Win_flush(0, win);
			/* Each is done to all elements at once. */
			for (int j = 0; j < N; j++)
				if (seen[j] != seen[0] || seen[j] < i + 1)
					fail("an accumulate is in parts", (long)seen[j]);
		}
		MPI_Accumulate(ones, 1, MPI_DOUBLE, 0, LAST, 1, MPI_DOUBLE, MPI_SUM, win);
		MPI_Win_flush(0, win);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_unlock_all(win);
	for (int i = 0; rank == 0 && i < N; i++)
		if (window[i] != (double)ROUNDS * (size - 1))
			fail("a wrong sum", (long)window[i]);
	MPI_Win_free(&win);
}

/* Short steps, and after each a look for what the rank before sends now and then: no step may wait for anybody. */
static void steps(void)
{
	enum { STEPS = 300000, EVERY = 10000, N = 1024 };
	int next = (rank + 1) % size, before = (rank + size - 1) % size, came = 0;
	unsigned char out[N], into[N];
	MPI_Request request;

	fill(out, N, rank, 5);
	MPI_Irecv(into, N, MPI_BYTE, before, 5, MPI_COMM_WORLD, &request);
	for (int step = 0; step < STEPS || came < STEPS / EVERY; step++) {
		int done;

		if (step < STEPS && step % EVERY == 0)
			MPI_Send(out, N, MPI_BYTE, next, 5, MPI_COMM_WORLD);
		if (came == STEPS / EVERY)
			continue;
		MPI_Test(&request, &done, MPI_STATUS_IGNORE);
		if (!done)
			continue;
		check(into, N, before, 5);
		if (++came < STEPS / EVERY)
			MPI_Irecv(into, N, MPI_BYTE, before, 5, MPI_COMM_WORLD, &request);
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "check";
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (!strcmp(what, "wait")) {
		crossing();
		MPI_Barrier(MPI_COMM_WORLD);
		printf("ready %d\n", (int)getpid());
		fflush(stdout);
		for (long sum = 0, one = 1;;)
			MPI_Allreduce(&one, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	}
	if (!strcmp(what, "oneside") || !strcmp(what, "noswap")) {
		oneside(!strcmp(what, "oneside"));
	} else if (!strcmp(what, "unhelped")) {
		unhelped();
	} else if (!strcmp(what, "steps")) {
		steps();
	} else {
		crossing();
		unexpected();
		details();
		together();
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		printf("all well\n");
		fflush(stdout);
	}
	MPI_Finalize();
	return 0;
}
