/* A message that lies in the segment until somebody says that it is to be received.
 *
 *   mpi_garbled FILE
 *
 * Rank 1 sends it and says so; rank 0 receives it once FILE is there. Rank 0 makes FILE.ready when it
 * looks for messages no more until then: what is sent before, it might have by now. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void wait_for(const char *file)
{
	while (access(file, F_OK) != 0)
		usleep(1000);
}

int main(int argc, char **argv)
{
	static const char mark[64] = "GINNEL-MPI-GARBLED: these bytes are looked for in the segment.";
	char got[64] = "", ready[4096];
	int me;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	if (argc != 2)
		MPI_Abort(MPI_COMM_WORLD, 1);
	snprintf(ready, sizeof(ready), "%s.ready", argv[1]);
	/* Both have heard each other. */
	MPI_Sendrecv(&me, 1, MPI_INT, 1 - me, 1, got, 1, MPI_INT, 1 - me, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (me == 1) {
		wait_for(ready);
		MPI_Send(mark, sizeof(mark), MPI_BYTE, 0, 2, MPI_COMM_WORLD);
		printf("sent\n");
		fflush(stdout);
		MPI_Recv(got, 1, MPI_BYTE, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	} else {
		fclose(fopen(ready, "w"));
		wait_for(argv[1]);
		MPI_Recv(got, sizeof(got), MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		printf("received %s\n", memcmp(got, mark, sizeof(mark)) == 0 ? "right" : "wrong");
		fflush(stdout);
		MPI_Send(got, 1, MPI_BYTE, 1, 3, MPI_COMM_WORLD);
	}
	MPI_Finalize();
	return 0;
}
