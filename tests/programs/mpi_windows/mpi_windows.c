/* Random one-sided MPI programs. A seed says who does what to whose window, and each rank computes
 * from that what must have come of it, whoever was first.
 *
 *   mpi_windows SEED PHASES [FAULT]
 *   mpi_windows meet    ranks count up one place of rank 0's own memory, each by another call
 *   mpi_windows sends   who has a lock sends to who waits for it, and waits until that is received
 *   mpi_windows shared  windows of shared memory beside others, each made by what it is said to be made by
 *   mpi_windows held    rank 1 locks everybody's window and keeps it; rank 0 says "ready" and the number of each
 *   mpi_windows abort   … and gives the job up a second later
 *
 * Several windows at once, of every kind of memory and on communicators of every kind; all ways to
 * synchronise. Ranks meet in the same places by different calls, of which each must be as a whole.
 * MPI_WINDOWS_THREADS: three threads of each rank do so at once, with windows of their own.
 * MPI_WINDOWS_FORKS: each rank starts and ends children meanwhile.
 * FAULT plants one, for the test of the test itself:
 *   twice   an accumulate is done twice            lost    one is left out
 *   ticket  a fetched number is another one        torn    of a group of cells one is left out
 */
#include "draw.h"
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>


/* A window's places on each rank, in words. Those of a row are changed together. */
enum { ROW = 4, SUMS = 0, REALS = 4, SMALL = 8, MOST_OF = 10, BITS = 11, TICKET = 12, LOCK = 13, GUARDED = 16, HELD = 20, WORDS = 24 };
enum { WINDOWS = 3, OPS = 40, MOST = 8 };
enum how { FENCE, POSTED, ALL, SHARED, EXCLUSIVE, MIXED, HOWS };
enum flavor { ALLOCATED, OWN, FLAVORS };
static const char *const hows[] = {"fence", "post", "lock all", "shared", "exclusive", "mixed"};
static const char *const flavors[] = {"allocated", "own"};

enum kind { ADD_ROW, FETCH_ROW, ADD_ONE, FETCH_ONE, ADD_REALS, ADD_SMALL, LARGEST, XOR, DRAW, DRAW_ROW, GUARD, HOLD, KINDS };

struct op {
	int to, kind, large;
	long value;
};

struct window {
	MPI_Win win;
	MPI_Comm comm;
	MPI_Group group;
	long *memory;
	int flavor, how, n, at, ops;
	u64 state;
	long drawn; /* the sum of what this rank has drawn */
};

static const char *fault = "";
static int me;

static void wrong(const struct window *w, const char *what, long got, long expected)
{
	fprintf(stderr, "rank %d: a window with %s memory, %s: %s: %ld for %ld\n", me, flavors[w->flavor], hows[w->how], what, got,
		expected);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static int is_planted(const char *name)
{
	static int done;
	return !strcmp(fault, name) && me == 0 && !done++;
}

/* What the rank does to the window at this turn: everybody knows it. */
static struct op op_of(const struct window *w, int rank, int turn)
{
	u64 state = mix(w->state ^ (u64)rank << 32 ^ (u64)turn);
	struct op op = {.to = (int)draw(&state, (u64)w->n), .kind = (int)draw(&state, KINDS), .value = 1 + (long)draw(&state, 1000)};
	/* These look at what they did, or do several things after one another: between fences and within the access
	 * that another has posted nothing is done before its end. */
	if (w->how <= POSTED && op.kind >= DRAW)
		op.kind = (int)draw(&state, DRAW);
	if (op.kind == HOLD && w->how != EXCLUSIVE && w->how != MIXED)
		op.kind = GUARD;
	op.large = w->how == MIXED && (op.kind == HOLD || draw(&state, 3) == 0);
	return op;
}

static void add(struct window *w, const void *from, int n, MPI_Datatype type, int to, int at, MPI_Op what)
{
	MPI_Aint place = at;
	if (what == MPI_SUM && is_planted("lost"))
		return;
	if (what == MPI_SUM && is_planted("twice"))
		MPI_Accumulate(from, n, type, to, place, n, type, what, w->win);
	MPI_Accumulate(from, n, type, to, place, n, type, what, w->win);
}

static void count_up(const struct window *w, long *row)
{
	long count = row[0];
	for (int i = 0; i < ROW; i++) {
		if (row[i] != count)
			wrong(w, "a row in parts", row[i], count);
		row[i]++;
	}
}

/* Takes the lock that lies in the window, which the one who holds it gives back. */
static void guarded(struct window *w, int to)
{
	long free_ = 0, name = w->at + 1, seen, row[ROW];
	int probed;
	for (;;) {
		MPI_Compare_and_swap(&name, &free_, &seen, MPI_LONG, to, LOCK, w->win);
		MPI_Win_flush(to, w->win);
		if (seen == 0)
			break;
		if (seen < 0 || seen > w->n)
			wrong(w, "who has the lock", seen, 0);
		/* osc/ucx answers nobody in a call that is done at once, and the holder may ask for this rank. */
		MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &probed, MPI_STATUS_IGNORE);
	}
	MPI_Get(row, ROW, MPI_LONG, to, GUARDED, ROW, MPI_LONG, w->win);
	MPI_Win_flush(to, w->win);
	count_up(w, row);
	MPI_Put(row, ROW, MPI_LONG, to, GUARDED, ROW, MPI_LONG, w->win);
	MPI_Win_flush(to, w->win);
	MPI_Compare_and_swap(&free_, &name, &seen, MPI_LONG, to, LOCK, w->win);
	MPI_Win_flush(to, w->win);
	if (seen != name)
		wrong(w, "the lock was another's", seen, name);
}

/* The caller has the window for itself. */
static void held(struct window *w, int to)
{
	long row[ROW];
	int n = is_planted("torn") ? ROW - 1 : ROW;
	MPI_Get(row, ROW, MPI_LONG, to, HELD, ROW, MPI_LONG, w->win);
	MPI_Win_flush(to, w->win);
	count_up(w, row);
	MPI_Put(row, n, MPI_LONG, to, HELD, n, MPI_LONG, w->win);
}

/* A number that nobody else draws. */
static void ticket(struct window *w, int to, int by_row)
{
	long one = 1, fetched = -1;
	if (by_row)
		MPI_Get_accumulate(&one, 1, MPI_LONG, &fetched, 1, MPI_LONG, to, TICKET, 1, MPI_LONG, MPI_SUM, w->win);
	else
		MPI_Fetch_and_op(&one, &fetched, MPI_LONG, to, TICKET, MPI_SUM, w->win);
	MPI_Win_flush(to, w->win);
	w->drawn += fetched + is_planted("ticket");
}

/* `row`, `real` and so on are the caller's until the next synchronisation. */
struct scratch {
	long row[ROW], got[ROW];
	double real[ROW];
	int small[2];
};

static void operate(struct window *w, const struct op *op, struct scratch *s)
{
	int to = op->to;
	for (int i = 0; i < ROW; i++)
		s->row[i] = op->value, s->real[i] = (double)op->value;
	s->small[0] = s->small[1] = (int)op->value;
	switch (op->kind) {
	case ADD_ROW:
		add(w, s->row, ROW, MPI_LONG, to, SUMS, MPI_SUM);
		break;
	case FETCH_ROW:
		MPI_Get_accumulate(s->row, ROW, MPI_LONG, s->got, ROW, MPI_LONG, to, SUMS, ROW, MPI_LONG, MPI_SUM, w->win);
		break;
	case ADD_ONE:
		add(w, s->row, 1, MPI_LONG, to, SUMS, MPI_SUM);
		break;
	case FETCH_ONE:
		MPI_Fetch_and_op(s->row, s->got, MPI_LONG, to, SUMS, MPI_SUM, w->win);
		break;
	case ADD_REALS:
		add(w, s->real, ROW, MPI_DOUBLE, to, REALS, MPI_SUM);
		break;
	case ADD_SMALL:
		if (op->value % 2)
			MPI_Fetch_and_op(s->small, s->got, MPI_INT, to, SMALL, MPI_SUM, w->win);
		else
			add(w, s->small, 1, MPI_INT, to, SMALL, MPI_SUM);
		break;
	case LARGEST:
		add(w, s->row, 1, MPI_LONG, to, MOST_OF, MPI_MAX);
		break;
	case XOR:
		add(w, s->row, 1, MPI_LONG, to, BITS, MPI_BXOR);
		break;
	case DRAW:
	case DRAW_ROW:
		ticket(w, to, op->kind == DRAW_ROW);
		break;
	case GUARD:
		guarded(w, to);
		break;
	default:
		held(w, to);
	}
}

/* Those who do something to `of`, or those to whom `of` does something. */
static MPI_Group partners(const struct window *w, int of, int who_come)
{
	int all[MOST], n = 0;
	MPI_Group group;
	for (int rank = 0; rank < w->n; rank++) {
		int is_one = 0;
		for (int turn = 0; turn < w->ops; turn++)
			is_one |= who_come ? op_of(w, rank, turn).to == of : op_of(w, of, turn).to == rank;
		if (is_one)
			all[n++] = rank;
	}
	MPI_Group_incl(w->group, n, all, &group);
	return group;
}

static void begin(struct window *w)
{
	MPI_Group to = partners(w, w->at, 0), from = partners(w, w->at, 1);
	if (w->how == FENCE)
		MPI_Win_fence(0, w->win);
	if (w->how == POSTED) {
		MPI_Win_post(from, 0, w->win);
		MPI_Win_start(to, 0, w->win);
	}
	if (w->how == ALL)
		MPI_Win_lock_all(0, w->win);
	for (int rank = 0; rank < w->n && w->how == SHARED; rank++)
		MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, w->win);
	MPI_Group_free(&to);
	MPI_Group_free(&from);
}

static void end(struct window *w)
{
	if (w->how == FENCE)
		MPI_Win_fence(0, w->win);
	if (w->how == POSTED) {
		MPI_Win_complete(w->win);
		MPI_Win_wait(w->win);
	}
	if (w->how == ALL)
		MPI_Win_unlock_all(w->win);
	for (int rank = 0; rank < w->n && w->how == SHARED; rank++)
		MPI_Win_unlock(rank, w->win);
}

static void turn(struct window *w, int number, struct scratch *s)
{
	struct op op = op_of(w, w->at, number);
	if (w->how == EXCLUSIVE || w->how == MIXED)
		MPI_Win_lock(w->how == EXCLUSIVE || op.large ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, op.to, 0, w->win);
	operate(w, &op, s);
	if (w->how == EXCLUSIVE || w->how == MIXED)
		MPI_Win_unlock(op.to, w->win);
	else if (w->how >= ALL && op.value % 3)
		MPI_Win_flush(op.to, w->win);
}

/* What all ranks together must have done to this one's memory. */
static void check(struct window *w)
{
	long expected[WORDS] = {0}, drawn = 0, tickets = 0;
	double reals = 0;
	int small = 0;
	for (int rank = 0; rank < w->n; rank++)
		for (int number = 0; number < w->ops; number++) {
			struct op op = op_of(w, rank, number);
			int kind = op.kind;
			if (op.to != w->at)
				continue;
			for (int i = 0; i < ROW; i++) {
				expected[SUMS + i] += kind == ADD_ROW || kind == FETCH_ROW || (i == 0 && (kind == ADD_ONE || kind == FETCH_ONE)) ? op.value : 0;
				expected[GUARDED + i] += kind == GUARD;
				expected[HELD + i] += kind == HOLD;
			}
			reals += kind == ADD_REALS ? (double)op.value : 0;
			small += kind == ADD_SMALL ? (int)op.value : 0;
			if (kind == LARGEST && op.value > expected[MOST_OF])
				expected[MOST_OF] = op.value;
			expected[BITS] ^= kind == XOR ? op.value : 0;
			expected[TICKET] += kind == DRAW || kind == DRAW_ROW;
		}
	tickets = expected[TICKET] * (expected[TICKET] - 1) / 2;
	MPI_Allreduce(MPI_IN_PLACE, &tickets, 1, MPI_LONG, MPI_SUM, w->comm);
	MPI_Allreduce(&w->drawn, &drawn, 1, MPI_LONG, MPI_SUM, w->comm);
	if (drawn != tickets)
		wrong(w, "numbers that were drawn", drawn, tickets);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, w->at, 0, w->win);
	for (int i = 0; i < ROW; i++)
		if (((double *)w->memory)[REALS + i] != reals)
			wrong(w, "a sum of reals", (long)((double *)w->memory)[REALS + i], (long)reals);
	if (*(int *)&w->memory[SMALL] != small)
		wrong(w, "a sum of small numbers", *(int *)&w->memory[SMALL], small);
	memcpy(&expected[REALS], &w->memory[REALS], (MOST_OF - REALS) * sizeof(long));
	for (int i = 0; i < WORDS; i++)
		if (w->memory[i] != expected[i])
			wrong(w, i < REALS ? "a sum" : i < TICKET ? "a largest, or bits" : i < GUARDED ? "tickets, or a lock" : "a row", w->memory[i], expected[i]);
	MPI_Win_unlock(w->at, w->win);
}

static void make(struct window *w, u64 *state, MPI_Comm comm)
{
	MPI_Aint bytes = WORDS * sizeof(long);
	w->flavor = (int)draw(state, FLAVORS), w->how = (int)draw(state, HOWS), w->ops = 1 + (int)draw(state, OPS);
	w->state = draw(state, UINT64_MAX), w->drawn = 0;
	u64 colours = draw(state, 3) ? 0 : draw(state, UINT64_MAX);
	MPI_Comm_rank(comm, &w->at);
	MPI_Comm_split(comm, (int)(colours >> w->at & 1), (int)(mix(colours + (u64)w->at) % 100), &w->comm);
	MPI_Comm_rank(w->comm, &w->at);
	MPI_Comm_size(w->comm, &w->n);
	MPI_Comm_group(w->comm, &w->group);
	/* Windows of two communicators have programs of their own. */
	w->state ^= colours >> me & 1;
	if (w->flavor == ALLOCATED)
		MPI_Win_allocate(bytes, sizeof(long), MPI_INFO_NULL, w->comm, &w->memory, &w->win);
	else {
		w->memory = malloc((size_t)bytes);
		MPI_Win_create(w->memory, bytes, sizeof(long), MPI_INFO_NULL, w->comm, &w->win);
	}
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, w->at, 0, w->win);
	memset(w->memory, 0, (size_t)bytes);
	MPI_Win_unlock(w->at, w->win);
	MPI_Barrier(w->comm);
}

static void unmake(struct window *w)
{
	MPI_Win_free(&w->win);
	if (w->flavor == OWN)
		free(w->memory);
	MPI_Group_free(&w->group);
	MPI_Comm_free(&w->comm);
}

static void phase(u64 state, MPI_Comm comm)
{
	static __thread struct scratch scratch[WINDOWS][OPS];
	struct window all[WINDOWS];
	int count = 1 + (int)draw(&state, WINDOWS), left = 1, at;
	for (int i = 0; i < count; i++)
		make(&all[i], &state, comm);
	for (int i = 0; i < count; i++)
		begin(&all[i]);
	for (int number = 0; left; number++) {
		left = 0;
		for (int i = 0; i < count; i++)
			if (number < all[i].ops)
				turn(&all[i], number, &scratch[i][number]), left = 1;
	}
	for (int i = 0; i < count; i++)
		end(&all[i]);
	MPI_Comm_rank(comm, &at);
	if (getenv("MPI_WINDOWS_FORKS")) {
		pid_t child = fork();
		if (child == 0)
			_exit(0);
		waitpid(child, NULL, 0);
		if (system("exit 3") != 3 << 8)
			wrong(&all[0], "a child's status", -1, 3);
	}
	for (int i = 0; i < count; i++) {
		MPI_Barrier(all[i].comm);
		check(&all[i]);
	}
	/* In another order than they were made. */
	for (int i = 0; i < count; i++)
		unmake(&all[(i + 1) % count]);
}

struct thread {
	pthread_t id;
	MPI_Comm comm;
	u64 state;
	int phases;
};

static void *work(void *given)
{
	struct thread *it = given;
	for (int i = 0; i < it->phases; i++) {
		if (getenv("MPI_WINDOWS_SAY"))
			fprintf(stderr, "rank %d: phase %d\n", me, i);
		phase(mix(it->state + (u64)i), it->comm);
	}
	return NULL;
}

/* An accumulate reads and writes under a lock. Whoever computes in the place itself takes that lock, too, and is to
 * be done when it gives it back. */
static void meet(void)
{
	enum { ROUNDS = 300 };
	long memory[2] = {0}, ones[2] = {1, 1}, seen[2];
	int n;
	MPI_Win win;
	MPI_Comm_size(MPI_COMM_WORLD, &n);
	MPI_Win_create(memory, sizeof(memory), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	MPI_Win_lock_all(0, win);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < ROUNDS && me > 0; i++) {
		if (me % 2)
			MPI_Accumulate(ones, 2, MPI_LONG, 0, 0, 2, MPI_LONG, MPI_SUM, win);
		else
			MPI_Fetch_and_op(ones, seen, MPI_LONG, 0, 0, MPI_SUM, win);
		MPI_Win_flush(0, win);
	}
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	if (me == 0 && memory[0] != ROUNDS * (n - 1)) {
		fprintf(stderr, "rank 0: a sum: %ld for %d\n", memory[0], ROUNDS * (n - 1));
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	MPI_Win_free(&win);
}

/* Rank 0 has its window locked, and sends to the others, who wait for the lock. */
static void sends(void)
{
	enum { BYTES = 1 << 20 };
	static char bytes[BYTES];
	long *memory;
	int n;
	MPI_Win win;
	MPI_Request received;
	MPI_Comm_size(MPI_COMM_WORLD, &n);
	MPI_Win_allocate(sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	if (me == 0)
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
	else
		MPI_Irecv(bytes, BYTES, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &received);
	MPI_Barrier(MPI_COMM_WORLD);
	if (me > 0)
		MPI_Win_lock(me % 2 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, 0, 0, win);
	else
		usleep(100000);
	for (int rank = 1; rank < n && me == 0; rank++)
		MPI_Ssend(bytes, BYTES, MPI_BYTE, rank, 0, MPI_COMM_WORLD);
	MPI_Win_unlock(0, win);
	if (me > 0)
		MPI_Wait(&received, MPI_STATUS_IGNORE);
	MPI_Win_free(&win);
}

/* Does this lie in the segment, which is the file mpi? */
static int is_in_segment(const void *memory)
{
	char line[512];
	unsigned long from, to;
	int is = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx", &from, &to) == 2 && from <= (unsigned long)memory && (unsigned long)memory < to)
			is = strstr(line, "/mpi\n") != NULL;
	fclose(maps);
	return is;
}

/* Ranks that share memory, all of one host, beside a window of another kind. */
static void shared(void)
{
	enum { ROUNDS = 3 };
	MPI_Comm here;
	int at, n;
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
	MPI_Comm_rank(here, &at);
	MPI_Comm_size(here, &n);
	for (int round = 0; round < ROUNDS; round++) {
		struct window w = {.flavor = ALLOCATED, .how = FENCE};
		MPI_Win other;
		MPI_Aint bytes;
		long *memory, *next;
		int unit;
		MPI_Aint own = (1 + at % 2 * 1000) * (MPI_Aint)sizeof(long);
		MPI_Win_allocate(sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &w.memory, &other);
		MPI_Win_allocate_shared(own, sizeof(long), MPI_INFO_NULL, here, &memory, &w.win);
		MPI_Win_shared_query(w.win, (at + 1) % n, &bytes, &unit, &next);
		MPI_Win_fence(0, w.win);
		memory[0] = round * 100 + at;
		MPI_Win_fence(0, w.win);
		if (next[0] != round * 100 + (at + 1) % n)
			wrong(&w, "what the next one wrote", next[0], round * 100 + (at + 1) % n);
		if (!is_in_segment(w.memory) || is_in_segment(memory))
			wrong(&w, "windows in the segment", is_in_segment(w.memory) + is_in_segment(memory), 1);
		MPI_Win_fence(0, w.win);
		MPI_Win_free(&w.win);
		MPI_Win_free(&other);
	}
	MPI_Comm_free(&here);
}

/* Rank 1 has the windows of all for itself, and they wait for it: until it is killed, or gives the job up. */
static void hold(int gives_up)
{
	int n, pid = (int)getpid(), pids[MOST];
	long *memory, one = 1;
	MPI_Win win;
	MPI_Comm_size(MPI_COMM_WORLD, &n);
	MPI_Win_allocate(sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	MPI_Gather(&pid, 1, MPI_INT, pids, 1, MPI_INT, 0, MPI_COMM_WORLD);
	for (int rank = 0; rank < n && me == 1; rank++)
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int rank = 0; rank < n && me == 0; rank++)
		printf("ready %d\n", pids[rank]);
	fflush(stdout);
	if (me == 1 && gives_up) {
		sleep(1);
		MPI_Abort(MPI_COMM_WORLD, 3);
	}
	for (; me == 1;)
		MPI_Accumulate(&one, 1, MPI_LONG, 0, 0, 1, MPI_LONG, MPI_SUM, win);
	MPI_Win_lock(me % 2 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, 0, 0, win);
	printf("two have it\n");
	MPI_Finalize();
	exit(0);
}

int main(int argc, char **argv)
{
	u64 seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	int wanted = getenv("MPI_WINDOWS_THREADS") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, level;
	int threads = wanted == MPI_THREAD_MULTIPLE ? 3 : 1;
	struct thread all[3];
	fault = argc > 3 ? argv[3] : "";
	MPI_Init_thread(&argc, &argv, wanted, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	if (argc > 1 && (!strcmp(argv[1], "held") || !strcmp(argv[1], "abort")))
		hold(argv[1][0] == 'a');
	static const struct {
		const char *name;
		void (*run)(void);
	} alone[] = {{"meet", meet}, {"sends", sends}, {"shared", shared}};
	int is_alone = 0;
	for (int i = 0; argc > 1 && i < 3; i++)
		if (!strcmp(argv[1], alone[i].name))
			alone[i].run(), is_alone = 1;
	for (int i = 0; i < threads; i++) {
		all[i].state = mix(seed * 1000003 + (u64)i * 7919), all[i].phases = is_alone ? 0 : argc > 2 ? atoi(argv[2]) : 20;
		MPI_Comm_dup(MPI_COMM_WORLD, &all[i].comm);
	}
	for (int i = 1; i < threads; i++)
		pthread_create(&all[i].id, NULL, work, &all[i]);
	work(&all[0]);
	for (int i = 1; i < threads; i++)
		pthread_join(all[i].id, NULL);
	for (int i = 0; i < threads; i++)
		MPI_Comm_free(&all[i].comm);
	MPI_Barrier(MPI_COMM_WORLD);
	if (me == 0)
		printf("all well\n");
	MPI_Finalize();
	return 0;
}
