/* Random MPI programs. A seed says what ranks do to each other; what came of it is one number for
 * each phase, which does not depend on who runs first, and so is the same over every transport.
 *
 *   mpi_random SEED PHASES [FAULT]
 *
 * FAULT plants one for the test of the test itself (see the end of this file):
 *   order   two messages to one rank pass each other    byte    a byte that was received is altered
 *   twice   one accumulate is done twice                short   a message loses its last byte
 */
#include "draw.h"
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 48, COMMS = 6 };
static int me, ranks, threads;
static const char *fault = "";
static MPI_Comm comms[COMMS];
static int comm_count;

static u64 hash(u64 key, const void *bytes, size_t n)
{
	u64 sum = mix(key ^ n);
	const unsigned char *at = bytes;
	for (; n >= 8; n -= 8, at += 8) {
		u64 word;
		memcpy(&word, at, 8);
		sum = (sum ^ word) * 0x9fb21c651e98df25u;
		sum ^= sum >> 32;
	}
	for (; n; n--)
		sum = (sum ^ *at++) * 0x100000001b3u;
	return mix(sum);
}

static void fill(void *to, size_t n, u64 key)
{
	unsigned char *at = to;
	for (size_t i = 0; i < n; i += 8) {
		u64 word = mix(key + i);
		memcpy(at + i, &word, n - i < 8 ? n - i : 8);
	}
}

/* Sizes that a transport treats in different ways, and their neighbours. */
static size_t size_of(u64 *state)
{
	static const size_t marks[] = {8, 32, 64, 256, 1024, 4096, 8192, 16384, 32768, 65536, 262144};
	switch (draw(state, 8)) {
	case 0:
		return draw(state, 3);
	case 1:
	case 2:
		return draw(state, 300);
	case 3:
		return draw(state, 20000);
	case 4:
		return draw(state, 12) ? draw(state, 100000) : draw(state, 3000000);
	default:
		return marks[draw(state, sizeof(marks) / sizeof(marks[0]))] - 8 + draw(state, 130);
	}
}

/* ---- Messages -------------------------------------------------------------------------------- */

struct message {
	int from, to, tag, shape, mode, order;
	size_t len;
	u64 key;
};

/* A data type of so many bytes in all, and how far it reaches. */
static MPI_Datatype shaped(int shape, size_t len, size_t *reach)
{
	MPI_Datatype type;
	*reach = len;
	if (len < 16 || shape == 0) {
		MPI_Type_contiguous((int)len, MPI_BYTE, &type);
	} else if (shape == 1) { /* every second of blocks of 8 bytes, and the rest */
		int lengths[2] = {1, (int)(len % 8)};
		MPI_Aint at[2] = {0, (MPI_Aint)(len / 8 * 16)};
		MPI_Datatype types[2] = {MPI_BYTE, MPI_BYTE};
		MPI_Type_vector((int)(len / 8), 8, 16, MPI_BYTE, &types[0]);
		MPI_Type_create_struct(2, lengths, at, types, &type);
		MPI_Type_free(&types[0]);
		*reach = len * 2 + 16;
	} else { /* two pieces, the second one first */
		int lengths[2] = {(int)(len / 3), (int)(len - len / 3)}, at[2] = {(int)(len - len / 3) + 5, 0};
		MPI_Type_indexed(2, lengths, at, MPI_BYTE, &type);
		*reach = len + 5;
	}
	MPI_Type_commit(&type);
	return type;
}

/* Packed, the message of this key: what a type's bytes are in its order. */
static void *packed_into(MPI_Datatype type, size_t len, size_t reach, u64 key)
{
	char *flat = malloc(len + 8), *out = calloc(1, reach + 8);
	int at = 0;
	fill(flat, len, key);
	MPI_Unpack(flat, (int)len, &at, out, 1, type, MPI_COMM_SELF);
	free(flat);
	return out;
}

static int same(const struct message *a, const struct message *b, int kind)
{
	return a->from == b->from && a->to == b->to && (kind == 1 || a->tag == b->tag);
}

struct exchange {
	struct message all[MOST];
	int count, kind, when, ends, me;
	MPI_Comm comm;
	MPI_Request requests[2 * MOST];
	void *out[MOST], *in[MOST];
	size_t room[MOST], reaches[MOST];
	int posted[MOST]; /* which message is expected there (kinds 0 and 1) */
	int sent, received, requested, receives_at[MOST];
	MPI_Datatype types[MOST];
	MPI_Status statuses[2 * MOST];
	u64 digest;
};

static void send_one(struct exchange *x, int index)
{
	struct message *it = &x->all[index];
	size_t reach;
	MPI_Datatype type = shaped(it->shape, it->len, &reach);
	MPI_Request *request = &x->requests[x->requested++];
	void *bytes = x->out[x->sent++] = packed_into(type, it->len, reach, it->key);
	if (it->mode == 1)
		MPI_Issend(bytes, 1, type, it->to, it->tag, x->comm, request);
	else if (it->mode == 2) {
		MPI_Send_init(bytes, 1, type, it->to, it->tag, x->comm, request);
		MPI_Start(request);
	} else if (it->len == 0)
		MPI_Isend(NULL, 0, MPI_BYTE, it->to, it->tag, x->comm, request);
	else
		MPI_Isend(bytes, 1, type, it->to, it->tag, x->comm, request);
	MPI_Type_free(&type);
}

/* Asks for the next message, as this exchange's kind does. */
static void ask_one(struct exchange *x)
{
	int at = x->received++;
	struct message *it = &x->all[x->posted[at]];
	size_t most = it->len, reach;
	int from = it->from, tag = it->tag;
	if (x->kind == 1)
		tag = MPI_ANY_TAG;
	if (x->kind == 2) {
		from = MPI_ANY_SOURCE, tag = MPI_ANY_TAG;
		for (int i = 0; i < x->count; i++)
			if (x->all[i].to == x->me && x->all[i].len > most)
				most = x->all[i].len;
	}
	x->types[at] = shaped(x->kind == 2 ? 0 : (it->shape + 1) % 3, most, &reach);
	x->reaches[at] = reach;
	x->room[at] = most;
	x->in[at] = calloc(1, reach + 8);
	x->receives_at[at] = x->requested;
	if (x->kind == 2)
		MPI_Irecv(x->in[at], (int)most, MPI_BYTE, from, tag, x->comm, &x->requests[x->requested++]);
	else
		MPI_Irecv(x->in[at], 1, x->types[at], from, tag, x->comm, &x->requests[x->requested++]);
}

/* Asked for at once, by whatever way is drawn; a persistent request is freed as it is done. */
static void finish(struct exchange *x, u64 *own)
{
	int done = 0, some[2 * MOST], n, way = (int)draw(own, 3);
	MPI_Request copies[2 * MOST];
	memcpy(copies, x->requests, sizeof(copies));
	if (way == 0) {
		MPI_Waitall(x->requested, x->requests, x->statuses);
	} else
		for (MPI_Status found[2 * MOST]; done < x->requested; done += n > 0 ? n : 0) {
			if (way == 1)
				MPI_Waitsome(x->requested, x->requests, &n, some, found);
			else
				MPI_Testsome(x->requested, x->requests, &n, some, found);
			for (int i = 0; i < n && n != MPI_UNDEFINED; i++)
				x->statuses[some[i]] = found[i];
		}
	for (int i = 0; i < x->requested; i++)
		if (x->requests[i] != MPI_REQUEST_NULL)
			MPI_Request_free(&x->requests[i]);
}

static void count_one(struct exchange *x, int at, MPI_Status *status, int *seen)
{
	int n = 0, expected = x->posted[at];
	u64 key;
	MPI_Get_count(status, MPI_BYTE, &n);
	/* Of one sender, messages are matched in order, whoever else sends. */
	key = x->kind >= 2 ? (u64)seen[status->MPI_SOURCE]++ : (u64)x->all[expected].order + 1000;
	key = mix(key) ^ (u64)status->MPI_SOURCE << 32 ^ (u64)status->MPI_TAG << 8 ^ (u64)x->me;
	char *flat = malloc(x->room[at] + 8);
	int position = 0;
	if (x->kind >= 2)
		memcpy(flat, x->in[at], (size_t)n);
	else
		MPI_Pack(x->in[at], 1, x->types[at], flat, (int)x->room[at], &position, MPI_COMM_SELF);
	x->digest += hash(key, flat, (size_t)n);
	free(flat);
}

/* Looked for, then received: from anybody, or by a matched probe. */
static void probe_all(struct exchange *x, u64 *own, int expected, int *seen)
{
	for (int at = 0; at < expected; at++) {
		MPI_Status status;
		MPI_Message message;
		int n, flag = 0;
		switch (draw(own, 3)) {
		case 0:
			MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, x->comm, &status);
			MPI_Get_count(&status, MPI_BYTE, &n);
			x->in[at] = calloc(1, (size_t)n + 8);
			MPI_Recv(x->in[at], n, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, x->comm, &status);
			break;
		case 1:
			MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, x->comm, &message, &status);
			MPI_Get_count(&status, MPI_BYTE, &n);
			x->in[at] = calloc(1, (size_t)n + 8);
			MPI_Mrecv(x->in[at], n, MPI_BYTE, &message, &status);
			break;
		default:
			while (!flag)
				MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, x->comm, &flag, &message, &status);
			MPI_Get_count(&status, MPI_BYTE, &n);
			x->in[at] = calloc(1, (size_t)n + 8);
			MPI_Request request;
			MPI_Imrecv(x->in[at], n, MPI_BYTE, &message, &request);
			MPI_Wait(&request, &status);
		}
		x->room[at] = (size_t)n;
		count_one(x, at, &status, seen);
		free(x->in[at]);
	}
}

static void plan(struct exchange *x, u64 *state, MPI_Comm comm)
{
	x->comm = comm;
	MPI_Comm_rank(comm, &x->me);
	MPI_Comm_size(comm, &x->ends);
	x->count = 1 + (int)draw(state, MOST);
	x->kind = (int)draw(state, 4); /* exact, any tag, anybody, looked for */
	x->when = (int)draw(state, 3);
	for (int i = 0; i < x->count; i++) {
		struct message *it = &x->all[i];
		it->from = (int)draw(state, (u64)x->ends), it->to = (int)draw(state, (u64)x->ends);
		it->tag = (int)draw(state, 4), it->shape = (int)draw(state, 3), it->mode = (int)draw(state, 6);
		it->len = size_of(state), it->key = draw(state, UINT64_MAX), it->order = 0;
		if (x->kind == 3 && it->mode == 1)
			it->mode = 0;
		for (int j = 0; j < i; j++)
			it->order += same(it, &x->all[j], x->kind);
	}
}

static int is_planted(const char *name, int *count, int when);

/* The fault `order`: two messages that are alike, the second one first. */
static void pass_each_other(struct exchange *x)
{
	static int seen;
	for (int i = 0; i < x->count; i++)
		for (int j = i + 1; j < x->count; j++)
			if (x->all[i].from == x->me && x->all[j].from == x->me && same(&x->all[i], &x->all[j], 0) &&
			    x->all[i].len > 8 && x->all[j].len > 8 && is_planted("order", &seen, 2)) {
				u64 key = x->all[i].key;
				x->all[i].key = x->all[j].key, x->all[j].key = key;
			}
}

/* Messages between the ranks of a communicator: sent in the plan's order, asked for in another. */
static u64 messages(u64 state, MPI_Comm comm)
{
	struct exchange *x = calloc(1, sizeof(*x));
	int used[MOST] = {0}, mine[MOST], expected = 0, next = 0;
	plan(x, &state, comm);
	u64 own = mix(state ^ (u64)x->me), digest;
	for (int i = 0; i < x->count; i++)
		if (x->all[i].to == x->me)
			mine[expected++] = i;
	for (int i = expected - 1; i > 0; i--) {
		int other = (int)draw(&own, (u64)i + 1), it = mine[i];
		mine[i] = mine[other], mine[other] = it;
	}
	/* Of those that are alike, the first that is sent is the first that is asked for. */
	for (int i = 0; i < expected; i++)
		for (int j = 0; j < x->count; j++)
			if (!used[j] && same(&x->all[j], &x->all[mine[i]], x->kind)) {
				used[j] = 1, x->posted[i] = j;
				break;
			}
	pass_each_other(x);
	int *seen = calloc((size_t)x->ends, sizeof(*seen));
	int receives = x->kind == 3 ? 0 : expected;
	while (x->received < receives || next < x->count) {
		int ask = x->when == 0 || next >= x->count || (x->when == 2 && draw(&own, 2));
		if (ask && x->received < receives)
			ask_one(x);
		else if (next < x->count && x->all[next++].from == x->me)
			send_one(x, next - 1);
	}
	if (x->kind == 3)
		probe_all(x, &own, expected, seen);
	finish(x, &own);
	for (int at = 0; at < receives; at++) {
		count_one(x, at, &x->statuses[x->receives_at[at]], seen);
		MPI_Type_free(&x->types[at]);
		free(x->in[at]);
	}
	for (int i = 0; i < x->sent; i++)
		free(x->out[i]);
	/* What comes next is not to be taken by who still asks for anything. */
	if (x->kind >= 2)
		MPI_Barrier(comm);
	digest = x->digest;
	free(seen);
	free(x);
	return digest;
}

/* ---- Collectives ----------------------------------------------------------------------------- */

static u64 collective(u64 state, MPI_Comm comm)
{
	int n, at, root;
	MPI_Comm_size(comm, &n);
	MPI_Comm_rank(comm, &at);
	root = (int)draw(&state, (u64)n);
	size_t len = 1 + size_of(&state) / 8 / (size_t)n;
	long *in = calloc(len * (size_t)n, sizeof(long)), *out = calloc(len * (size_t)n, sizeof(long));
	int kind = (int)draw(&state, 9), count = (int)len, *counts = calloc((size_t)n, 2 * sizeof(int)), *places = counts + n;
	fill(in, len * (size_t)n * sizeof(long), mix(state ^ (u64)at));
	for (int i = 0; i < n; i++)
		counts[i] = (int)draw(&state, len + 1), places[i] = i * count;
	MPI_Op op = draw(&state, 2) ? MPI_BXOR : MPI_SUM;
	MPI_Request request;
	switch (kind) {
	case 0:
		memcpy(out, in, len * sizeof(long));
		MPI_Bcast(out, count, MPI_LONG, root, comm);
		break;
	case 1:
		MPI_Reduce(in, out, count, MPI_LONG, op, root, comm);
		break;
	case 2:
		MPI_Allreduce(in, out, count, MPI_LONG, op, comm);
		break;
	case 3:
		MPI_Alltoall(in, count, MPI_LONG, out, count, MPI_LONG, comm);
		break;
	case 4:
		MPI_Allgatherv(in, counts[at], MPI_LONG, out, counts, places, MPI_LONG, comm);
		break;
	case 5:
		MPI_Scan(in, out, count, MPI_LONG, op, comm);
		break;
	case 6:
		MPI_Iallreduce(in, out, count, MPI_LONG, op, comm, &request);
		MPI_Barrier(comm);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		break;
	case 7:
		MPI_Scatterv(in, counts, places, MPI_LONG, out, counts[at], MPI_LONG, root, comm);
		break;
	default:
		MPI_Reduce_scatter_block(in, out, count, MPI_LONG, op, comm);
	}
	u64 digest = hash(mix((u64)at + 77), out, len * (size_t)n * sizeof(long));
	free(in);
	free(out);
	free(counts);
	return digest;
}

/* ---- Memory of others ------------------------------------------------------------------------ */

enum { CELLS = 64, SLOTS = 12 };

struct window {
	MPI_Win win;
	long *memory;
	size_t slot, bytes;
	int n, at, sync;
	u64 digest;
};

/* One operation; what it is to have done does not depend on the others. */
static void operate(struct window *w, u64 *own, int slot, long *scratch)
{
	int to = (int)draw(own, (u64)w->n), cell = (int)draw(own, CELLS - 2), many = 1 + (int)draw(own, 3);
	MPI_Aint mine = (MPI_Aint)(CELLS + (size_t)(w->at * SLOTS + slot) * w->slot);
	int len = 1 + (int)draw(own, w->slot), kind = (int)draw(own, 5);
	MPI_Op op = cell % 2 ? MPI_BXOR : MPI_SUM;
	long fetched[8] = {0};
	fill(scratch, (size_t)len * sizeof(long), draw(own, UINT64_MAX));
	if (kind < 2) {
		MPI_Put(scratch, len, MPI_LONG, to, mine, len, MPI_LONG, w->win);
		if (w->sync >= 2) {
			long *back = calloc((size_t)len, sizeof(long));
			MPI_Win_flush(to, w->win);
			MPI_Get(back, len, MPI_LONG, to, mine, len, MPI_LONG, w->win);
			MPI_Win_flush(to, w->win);
			w->digest += hash(mix((u64)slot), back, (size_t)len * sizeof(long));
			free(back);
		}
	} else if (kind == 2 && w->sync >= 2) {
		/* The values that all fetch are told apart by their sum: see `memory`. */
		long one = 1;
		MPI_Fetch_and_op(&one, fetched, MPI_LONG, to, CELLS - 2, MPI_SUM, w->win);
		MPI_Win_flush(to, w->win);
		w->digest += mix((u64)fetched[0] ^ (u64)to << 32);
	} else if (kind == 3 && w->sync >= 2) {
		long zero = 0, name = 1;
		MPI_Compare_and_swap(&name, &zero, fetched, MPI_LONG, to, CELLS - 1, w->win);
		MPI_Win_flush(to, w->win);
		w->digest += mix((u64)fetched[0] + 5 + ((u64)to << 32)) * (fetched[0] == 0);
	} else {
		/* Cells of one operation each: the sum does not depend on the order. */
		for (int i = 0; i < many; i++)
			MPI_Accumulate(&scratch[0], 1, MPI_LONG, to, cell, 1, MPI_LONG, op, w->win);
		if (w->sync >= 2)
			MPI_Win_flush(to, w->win);
	}
}

static u64 memory(u64 state, MPI_Comm comm)
{
	struct window w = {.sync = (int)draw(&state, 5), .slot = 1 + size_of(&state) % 6000};
	int own_memory = (int)draw(&state, 2), ops = 1 + (int)draw(&state, SLOTS);
	MPI_Comm_size(comm, &w.n);
	MPI_Comm_rank(comm, &w.at);
	w.bytes = (CELLS + (size_t)(w.n * SLOTS) * w.slot) * sizeof(long);
	if (own_memory) {
		w.memory = malloc(w.bytes);
		MPI_Win_create(w.memory, (MPI_Aint)w.bytes, sizeof(long), MPI_INFO_NULL, comm, &w.win);
	} else
		MPI_Win_allocate((MPI_Aint)w.bytes, sizeof(long), MPI_INFO_NULL, comm, &w.memory, &w.win);
	memset(w.memory, 0, w.bytes);
	long *scratch = malloc(SLOTS * w.slot * sizeof(long));
	u64 own = mix(state ^ (u64)w.at);
	MPI_Group group;
	MPI_Comm_group(comm, &group);
	MPI_Barrier(comm);
	if (w.sync == 0)
		MPI_Win_fence(0, w.win);
	else if (w.sync == 1) {
		MPI_Win_post(group, 0, w.win);
		MPI_Win_start(group, 0, w.win);
	} else if (w.sync == 2)
		MPI_Win_lock_all(0, w.win);
	else
		for (int to = 0; to < w.n && w.sync == 3; to++)
			MPI_Win_lock(MPI_LOCK_SHARED, to, 0, w.win);
	for (int slot = 0; slot < ops; slot++) {
		u64 before = own;
		int to = (int)draw(&before, (u64)w.n);
		if (w.sync == 4)
			MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, w.win);
		operate(&w, &own, slot, scratch + (size_t)slot * w.slot);
		if (w.sync == 4)
			MPI_Win_unlock(to, w.win);
	}
	if (w.sync == 0)
		MPI_Win_fence(0, w.win);
	else if (w.sync == 1) {
		MPI_Win_complete(w.win);
		MPI_Win_wait(w.win);
	} else if (w.sync == 2)
		MPI_Win_unlock_all(w.win);
	else
		for (int to = 0; to < w.n && w.sync == 3; to++)
			MPI_Win_unlock(to, w.win);
	MPI_Barrier(comm);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, w.at, 0, w.win);
	w.digest += hash(mix((u64)w.at + 99), w.memory, w.bytes);
	MPI_Win_unlock(w.at, w.win);
	MPI_Win_free(&w.win);
	MPI_Group_free(&group);
	free(scratch);
	if (own_memory)
		free(w.memory);
	return w.digest;
}

/* ---- Communicators, threads ------------------------------------------------------------------ */

static u64 communicators(u64 state)
{
	if (comm_count == COMMS || (comm_count > 2 && draw(&state, 3) == 0)) {
		int out = 1 + (int)draw(&state, (u64)comm_count - 1);
		MPI_Comm_free(&comms[out]);
		comms[out] = comms[--comm_count];
		return 1;
	}
	MPI_Comm *made = &comms[comm_count++];
	if (draw(&state, 2))
		MPI_Comm_dup(comms[draw(&state, (u64)comm_count - 1)], made);
	else
		MPI_Comm_split(MPI_COMM_WORLD, (int)(mix(state ^ (u64)me) % 2), (int)(mix(state + (u64)me) % 100), made);
	return 2;
}

struct thread {
	pthread_t id;
	MPI_Comm comm;
	u64 state, digest;
};

static void *talk(void *given)
{
	struct thread *it = given;
	for (int i = 0; i < 4; i++)
		it->digest += i % 2 ? collective(mix(it->state + (u64)i), it->comm) : messages(mix(it->state + (u64)i), it->comm);
	return NULL;
}

/* Threads of each rank at once, each with a communicator of its own. */
static u64 at_once(u64 state)
{
	enum { THREADS = 3 };
	struct thread all[THREADS];
	u64 digest = 0;
	for (int i = 0; i < THREADS; i++) {
		all[i].state = mix(state + (u64)i * 1000), all[i].digest = 0;
		MPI_Comm_dup(MPI_COMM_WORLD, &all[i].comm);
	}
	for (int i = 0; i < THREADS; i++)
		if (threads)
			pthread_create(&all[i].id, NULL, talk, &all[i]);
		else
			talk(&all[i]);
	for (int i = 0; i < THREADS; i++) {
		if (threads)
			pthread_join(all[i].id, NULL);
		digest += all[i].digest;
		MPI_Comm_free(&all[i].comm);
	}
	return digest;
}

int main(int argc, char **argv)
{
	static const char *const names[] = {"messages", "collective", "memory", "communicators", "threads"};
	u64 seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	int phases = argc > 2 ? atoi(argv[2]) : 20, level, wanted;
	wanted = getenv("MPI_RANDOM_THREADS") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
	MPI_Init_thread(&argc, &argv, wanted, &level);
	threads = wanted == MPI_THREAD_MULTIPLE && level == MPI_THREAD_MULTIPLE;
	/* osc/pt2pt of Open MPI makes no windows where threads call at once. */
	int windows = !getenv("MPI_RANDOM_NO_WINDOWS");
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	comms[0] = MPI_COMM_WORLD, comm_count = 1;
	fault = argc > 3 ? argv[3] : "";
	u64 *mine = calloc((size_t)phases, sizeof(*mine)), *all = calloc((size_t)phases, sizeof(*all));
	int *kinds = calloc((size_t)phases, sizeof(*kinds));
	for (int phase = 0; phase < phases; phase++) {
		u64 state = mix(seed * 1000003 + (u64)phase), own;
		int kind = (int)draw(&state, 12);
		kind = kind < 5 ? 0 : kind < 7 ? 1 : kind < 10 ? 2 : kind < 11 ? 3 : 4;
		if (kind == 2 && !windows)
			kind = 0;
		kinds[phase] = kind;
		MPI_Comm comm = comms[draw(&state, (u64)comm_count)];
		own = state;
		if (getenv("MPI_RANDOM_SAY"))
			fprintf(stderr, "rank %d: phase %d %s\n", me, phase, names[kind]);
		switch (kind) {
		case 0:
			mine[phase] = messages(own, comm);
			break;
		case 1:
			mine[phase] = collective(own, comm);
			break;
		case 2:
			mine[phase] = memory(own, comm);
			break;
		case 3:
			mine[phase] = communicators(own);
			break;
		default:
			mine[phase] = at_once(own);
		}
	}
	fault = "";
	MPI_Reduce(mine, all, phases, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
	for (int phase = 0; phase < phases && me == 0; phase++)
		printf("%d %s %016llx\n", phase, names[kinds[phase]], (unsigned long long)all[phase]);
	if (me == 0)
		printf("all well\n");
	MPI_Finalize();
	return 0;
}

/* ---- Planted faults: these stand before the library's own functions --------------------------- */

static int is_planted(const char *name, int *count, int when)
{
	return !strcmp(fault, name) && me == 0 && ++*count == when;
}

int MPI_Isend(const void *from, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
	static int lost;
	int bytes = 0;
	MPI_Type_size(type, &bytes);
	if (n == 1 && bytes > 8 && is_planted("short", &lost, 3)) {
		static char flat[1 << 22];
		int at = 0;
		MPI_Pack(from, 1, type, flat, sizeof(flat), &at, comm);
		return PMPI_Isend(flat, at - 1, MPI_BYTE, to, tag, comm, request);
	}
	return PMPI_Isend(from, n, type, to, tag, comm, request);
}

int MPI_Pack(const void *from, int n, MPI_Datatype type, void *to, int room, int *at, MPI_Comm comm)
{
	static int seen;
	int begin = *at, failed = PMPI_Pack(from, n, type, to, room, at, comm);
	if (*at > begin && is_planted("byte", &seen, 5))
		((char *)to)[begin + (*at - begin) / 2] ^= 16;
	return failed;
}

int MPI_Accumulate(const void *from, int n, MPI_Datatype type, int to, MPI_Aint at, int m, MPI_Datatype other, MPI_Op op,
		   MPI_Win win)
{
	static int seen;
	if (is_planted("twice", &seen, 3))
		PMPI_Accumulate(from, n, type, to, at, m, other, op, win);
	return PMPI_Accumulate(from, n, type, to, at, m, other, op, win);
}
