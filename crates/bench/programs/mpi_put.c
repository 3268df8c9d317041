/* A put of 8 bytes into another rank's window and the flush after it, and the same of a get, between two
 * ranks: microseconds, as "osu put+flush 8 VALUE". The programs of mpi4py cannot measure so little. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { SIZE = 8 };

static double seconds(MPI_Win window, int is_put, int turns)
{
	long own = 42;
	double began = MPI_Wtime();
	for (int i = 0; i < turns; i++) {
		if (is_put)
			MPI_Put(&own, SIZE, MPI_BYTE, 1, 0, SIZE, MPI_BYTE, window);
		else
			MPI_Get(&own, SIZE, MPI_BYTE, 1, 0, SIZE, MPI_BYTE, window);
		MPI_Win_flush(1, window);
	}
	if (own != 42)
		MPI_Abort(MPI_COMM_WORLD, 1);
	return MPI_Wtime() - began;
}

int main(int argc, char **argv)
{
	int rank, size;
	void *memory;
	MPI_Win window;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size != 2)
		MPI_Abort(MPI_COMM_WORLD, 2);
	MPI_Win_allocate(SIZE, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
	memset(memory, 0, SIZE);
	MPI_Win_lock_all(0, window);
	MPI_Barrier(MPI_COMM_WORLD);
	/* Rank 1 waits in MPI meanwhile, and so makes progress where a way needs that. */
	for (int is_put = 1; rank == 0 && is_put >= 0; is_put--) {
		int turns = 100;
		double took = seconds(window, is_put, turns);
		while (took < 0.1)
			took = seconds(window, is_put, turns *= 4);
		printf("osu %s+flush %d %.4f\n", is_put ? "put" : "get", SIZE, took / turns * 1e6);
		fflush(stdout);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_unlock_all(window);
	/* What was put is there. */
	if (rank == 1 && *(long *)memory != 42)
		MPI_Abort(MPI_COMM_WORLD, 3);
	MPI_Win_free(&window);
	return MPI_Finalize();
}
