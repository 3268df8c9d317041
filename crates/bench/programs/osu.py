"""The patterns of OSU's micro-benchmarks between two ranks, by mpi4py: latency, bandwidth one way
and both ways, put and get, allreduce, alltoall. Rank 0 prints a line for each:

    osu NAME BYTES VALUE       microseconds, or megabytes a second of the two bandwidths

A figure has mpi4py's own time in it, about half a microsecond a call, by every way alike."""

import mpi4py

# Open MPI's osc/pt2pt, which plain TCP has, makes no windows for programs whose threads call at
# once.
mpi4py.rc.threads = False

from mpi4py import MPI  # noqa: E402

SECONDS = 0.12
WINDOW = 64
world = MPI.COMM_WORLD
rank = world.Get_rank()
other = 1 - rank


def timed(call, window=1):
    """Seconds of one call of both ranks, of as many as take SECONDS."""
    turns, took = 5, 0.0
    while True:
        world.Barrier()
        began = MPI.Wtime()
        for _ in range(turns):
            call()
        world.Barrier()
        took = world.bcast(MPI.Wtime() - began)
        if took >= SECONDS / 2:
            return took / turns / window
        turns = int(turns * min(20, max(2, 1.2 * SECONDS / max(took, 1e-6))))


def say(name, size, value):
    if rank == 0:
        print("osu", name, size, f"{value:.4f}", flush=True)


def latency(size):
    there, back = bytearray(size), bytearray(size)

    def call():
        if rank == 0:
            world.Send([there, MPI.BYTE], other)
            world.Recv([back, MPI.BYTE], other)
        else:
            world.Recv([back, MPI.BYTE], other)
            world.Send([there, MPI.BYTE], other)

    say("latency", size, timed(call) / 2 * 1e6)


def bandwidth(size, both):
    """A window of messages one way or both, then a word back."""
    out, into, word = bytearray(size), bytearray(size), bytearray(4)

    def call():
        requests = []
        if both or rank == 1:
            requests += [world.Irecv([into, MPI.BYTE], other, 1) for _ in range(WINDOW)]
        if both or rank == 0:
            requests += [world.Isend([out, MPI.BYTE], other, 1) for _ in range(WINDOW)]
        MPI.Request.Waitall(requests)
        if rank == 0:
            world.Recv([word, MPI.BYTE], other, 2)
        else:
            world.Send([word, MPI.BYTE], other, 2)

    name = "both ways" if both else "bandwidth"
    say(name.replace(" ", "-"), size, (2 if both else 1) * size / timed(call, WINDOW) / 1e6)


def remote(size):
    """Rank 0 puts into memory of rank 1's, then gets from it, and waits for each."""
    window, own = MPI.Win.Allocate(size, comm=world), bytearray(size)
    window.Lock_all()

    def of(operation):
        def call():
            if rank == 0:
                operation([own, MPI.BYTE], other)
                window.Flush(other)

        return timed(call) * 1e6

    say("put", size, of(window.Put))
    say("get", size, of(window.Get))
    window.Unlock_all()
    window.Free()


def collective(size):
    out, into = bytearray(2 * size), bytearray(2 * size)
    some, sums = [out, size // 8, MPI.DOUBLE], [into, size // 8, MPI.DOUBLE]
    say("allreduce", size, timed(lambda: world.Allreduce(some, sums)) * 1e6)
    each = [out, size, MPI.BYTE], [into, size, MPI.BYTE]
    say("alltoall", size, timed(lambda: world.Alltoall(*each)) * 1e6)


assert world.Get_size() == 2
for bytes_ in (8, 4096, 65536, 1 << 20):
    latency(bytes_)
for bytes_ in (4096, 65536, 1 << 20):
    bandwidth(bytes_, False)
for bytes_ in (4096, 65536, 1 << 20):
    bandwidth(bytes_, True)
for bytes_ in (8, 65536):
    remote(bytes_)
    collective(bytes_)
