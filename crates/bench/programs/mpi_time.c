/* How long an MPI program takes from the end of MPI_Init to MPI_Finalize, and with MPI_TIME_CALLS how much of
 * that it spends in calls of MPI. Preloaded; goes by MPI's own interface for tools (MPI 3.1, chapter 14.2).
 * Rank 0 prints "result seconds=… in_mpi=…", the second as the mean of all ranks.
 *
 * Calls that Fortran makes go past it in Open MPI: the programs that are measured communicate in C and C++. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double began, inside;
static int counts;

static double now(void)
{
	struct timespec it;
	clock_gettime(CLOCK_MONOTONIC, &it);
	return (double)it.tv_sec + 1e-9 * (double)it.tv_nsec;
}

static void start(void)
{
	counts = getenv("MPI_TIME_CALLS") != NULL;
	began = now();
	inside = 0;
}

int MPI_Init(int *argc, char ***argv)
{
	int done = PMPI_Init(argc, argv);
	start();
	return done;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
	int done = PMPI_Init_thread(argc, argv, required, provided);
	start();
	return done;
}

int MPI_Finalize(void)
{
	double took = now() - began, all = 0;
	int rank, size;
	PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
	PMPI_Comm_size(MPI_COMM_WORLD, &size);
	PMPI_Reduce(&inside, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0) {
		printf("\nresult seconds=%.6f in_mpi=%.6f\n", took, all / size);
		fflush(stdout);
	}
	return PMPI_Finalize();
}

#define CALL(name, taken, given)                                                                                   \
	int MPI_##name taken                                                                                       \
	{                                                                                                          \
		if (!counts)                                                                                       \
			return PMPI_##name given;                                                                  \
		double from = now();                                                                               \
		int done = PMPI_##name given;                                                                      \
		inside += now() - from;                                                                            \
		return done;                                                                                       \
	}

CALL(Send, (const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c), (b, n, t, to, tag, c))
CALL(Ssend, (const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c), (b, n, t, to, tag, c))
CALL(Rsend, (const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c), (b, n, t, to, tag, c))
CALL(Recv, (void *b, int n, MPI_Datatype t, int from_, int tag, MPI_Comm c, MPI_Status *s), (b, n, t, from_, tag, c, s))
CALL(Isend, (const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Request *r),
     (b, n, t, to, tag, c, r))
CALL(Irecv, (void *b, int n, MPI_Datatype t, int from_, int tag, MPI_Comm c, MPI_Request *r),
     (b, n, t, from_, tag, c, r))
CALL(Sendrecv,
     (const void *b, int n, MPI_Datatype t, int to, int tag, void *b2, int n2, MPI_Datatype t2, int from_, int tag2,
      MPI_Comm c, MPI_Status *s),
     (b, n, t, to, tag, b2, n2, t2, from_, tag2, c, s))
CALL(Probe, (int from_, int tag, MPI_Comm c, MPI_Status *s), (from_, tag, c, s))
CALL(Iprobe, (int from_, int tag, MPI_Comm c, int *f, MPI_Status *s), (from_, tag, c, f, s))
CALL(Wait, (MPI_Request * r, MPI_Status *s), (r, s))
CALL(Waitall, (int n, MPI_Request r[], MPI_Status s[]), (n, r, s))
CALL(Waitany, (int n, MPI_Request r[], int *at, MPI_Status *s), (n, r, at, s))
CALL(Test, (MPI_Request * r, int *f, MPI_Status *s), (r, f, s))
CALL(Testall, (int n, MPI_Request r[], int *f, MPI_Status s[]), (n, r, f, s))
CALL(Testany, (int n, MPI_Request r[], int *at, int *f, MPI_Status *s), (n, r, at, f, s))
CALL(Barrier, (MPI_Comm c), (c))
CALL(Bcast, (void *b, int n, MPI_Datatype t, int root, MPI_Comm c), (b, n, t, root, c))
CALL(Reduce, (const void *b, void *to, int n, MPI_Datatype t, MPI_Op o, int root, MPI_Comm c), (b, to, n, t, o, root, c))
CALL(Allreduce, (const void *b, void *to, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c), (b, to, n, t, o, c))
CALL(Reduce_scatter, (const void *b, void *to, const int n[], MPI_Datatype t, MPI_Op o, MPI_Comm c),
     (b, to, n, t, o, c))
CALL(Scan, (const void *b, void *to, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c), (b, to, n, t, o, c))
CALL(Gather, (const void *b, int n, MPI_Datatype t, void *to, int n2, MPI_Datatype t2, int root, MPI_Comm c),
     (b, n, t, to, n2, t2, root, c))
CALL(Allgather, (const void *b, int n, MPI_Datatype t, void *to, int n2, MPI_Datatype t2, MPI_Comm c),
     (b, n, t, to, n2, t2, c))
CALL(Allgatherv,
     (const void *b, int n, MPI_Datatype t, void *to, const int n2[], const int at[], MPI_Datatype t2, MPI_Comm c),
     (b, n, t, to, n2, at, t2, c))
CALL(Alltoall, (const void *b, int n, MPI_Datatype t, void *to, int n2, MPI_Datatype t2, MPI_Comm c),
     (b, n, t, to, n2, t2, c))
CALL(Alltoallv,
     (const void *b, const int n[], const int a[], MPI_Datatype t, void *to, const int n2[], const int at[],
      MPI_Datatype t2, MPI_Comm c),
     (b, n, a, t, to, n2, at, t2, c))
CALL(Put,
     (const void *b, int n, MPI_Datatype t, int to, MPI_Aint at, int n2, MPI_Datatype t2, MPI_Win w),
     (b, n, t, to, at, n2, t2, w))
CALL(Get, (void *b, int n, MPI_Datatype t, int to, MPI_Aint at, int n2, MPI_Datatype t2, MPI_Win w),
     (b, n, t, to, at, n2, t2, w))
CALL(Accumulate,
     (const void *b, int n, MPI_Datatype t, int to, MPI_Aint at, int n2, MPI_Datatype t2, MPI_Op o, MPI_Win w),
     (b, n, t, to, at, n2, t2, o, w))
CALL(Fetch_and_op, (const void *b, void *r, MPI_Datatype t, int to, MPI_Aint at, MPI_Op o, MPI_Win w),
     (b, r, t, to, at, o, w))
CALL(Win_lock, (int how, int to, int a, MPI_Win w), (how, to, a, w))
CALL(Win_unlock, (int to, MPI_Win w), (to, w))
CALL(Win_flush, (int to, MPI_Win w), (to, w))
CALL(Win_flush_local, (int to, MPI_Win w), (to, w))
CALL(Win_flush_all, (MPI_Win w), (w))
CALL(Win_fence, (int a, MPI_Win w), (a, w))
CALL(Win_sync, (MPI_Win w), (w))
