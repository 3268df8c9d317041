/* What a program may ask of UCX and MPI does not, each answer checked; says "all well".
 *
 *   ucx_calls order     a send's completion sends the next message: none passes those that wait for room
 *   ucx_calls threads   workers that one thread opens, others use and close
 *   ucx_calls wait      two threads' workers that wait for each other by descriptor
 *
 * All workers are this process's own, each an end of its own in the segment.
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

enum { LONG = 9000, MANY = 3000, FIRST = 200, TAG = 7 };
static ucp_context_h context;

static void fail(const char *what, long at)
{
	fprintf(stderr, "%s (%ld)\n", what, at);
	exit(1);
}

static void must(ucs_status_t status, const char *what)
{
	if (status != UCS_OK) {
		fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
		exit(1);
	}
}

static ucp_worker_h worker(void)
{
	ucp_worker_params_t with = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE};
	ucp_worker_h made;
	must(ucp_worker_create(context, &with, &made), "ucp_worker_create");
	return made;
}

static ucp_ep_h way(ucp_worker_h from, ucp_worker_h to)
{
	ucp_ep_params_t with = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
	ucp_address_t *address;
	size_t len;
	ucp_ep_h made;
	must(ucp_worker_get_address(to, &address, &len), "ucp_worker_get_address");
	with.address = address;
	must(ucp_ep_create(from, &with, &made), "ucp_ep_create");
	ucp_worker_release_address(to, address);
	return made;
}

static void waited(ucp_worker_h a, ucp_worker_h b, void *request)
{
	while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS) {
		ucp_worker_progress(a);
		if (b)
			ucp_worker_progress(b);
	}
	if (UCS_PTR_IS_PTR(request))
		ucp_request_free(request);
	else if (UCS_PTR_IS_ERR(request))
		must(UCS_PTR_STATUS(request), "a request");
}

static void close_way(ucp_worker_h a, ucp_worker_h b, ucp_ep_h end)
{
	ucp_request_param_t none = {0};
	waited(a, b, ucp_ep_close_nbx(end, &none));
}

/* ---- order ---- */

static ucp_ep_h out;
static char *blocks;
static int sent;

static void send_next(void);

static void done(void *request, ucs_status_t status, void *unused)
{
	(void)unused;
	must(status, "a send");
	send_next();
	ucp_request_free(request);
}

static void send_next(void)
{
	ucp_request_param_t with = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb.send = done};
	if (sent == MANY)
		return;
	char *block = blocks + (size_t)sent * LONG;
	memset(block, sent % 251, LONG);
	memcpy(block, &sent, sizeof(sent));
	sent++;
	ucs_status_ptr_t request = ucp_tag_send_nbx(out, block, LONG, TAG, &with);
	if (UCS_PTR_IS_ERR(request))
		must(UCS_PTR_STATUS(request), "ucp_tag_send_nbx");
}

static void order(void)
{
	ucp_worker_h a = worker(), b = worker();
	char *got = malloc(LONG);
	blocks = malloc((size_t)MANY * LONG);
	out = way(a, b);
	while (sent < FIRST)
		send_next();
	for (int next = 0; next < MANY; next++) {
		ucp_request_param_t none = {0};
		int number;
		if (next >= sent)
			send_next();
		void *request = ucp_tag_recv_nbx(b, got, LONG, TAG, UINT64_MAX, &none);
		waited(b, next % 7 ? NULL : a, NULL);
		while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS) {
			ucp_worker_progress(b);
			if (next % 7 == 0 || ucp_request_check_status(request) == UCS_INPROGRESS)
				ucp_worker_progress(a);
		}
		waited(b, a, request);
		memcpy(&number, got, sizeof(number));
		if (number != next)
			fail("messages passed each other", number - next);
	}
	close_way(a, b, out);
	ucp_worker_destroy(a);
	ucp_worker_destroy(b);
}

/* ---- threads ---- */

static ucp_worker_h lent[2];
static int rounds;

/* Sends to itself by two workers that another thread opened, and closes them. */
static void *borrow(void *unused)
{
	ucp_worker_h a = lent[0], b = lent[1];
	ucp_request_param_t none = {0};
	ucp_ep_h end = way(a, b);
	char from[100], to[100];
	(void)unused;
	for (int i = 0; i < 300; i++) {
		memset(from, i, sizeof(from));
		void *receive = ucp_tag_recv_nbx(b, to, sizeof(to), TAG, UINT64_MAX, &none);
		void *send = ucp_tag_send_nbx(end, from, sizeof(from), TAG, &none);
		waited(a, b, send);
		waited(b, a, receive);
		if (memcmp(from, to, sizeof(from)))
			fail("a wrong byte", i);
	}
	close_way(a, b, end);
	ucp_worker_destroy(a);
	ucp_worker_destroy(b);
	__atomic_add_fetch(&rounds, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void threads(void)
{
	ucp_worker_h own = worker(), other = worker();
	ucp_ep_h end = way(own, other);
	for (int round = 0; round < 12; round++) {
		pthread_t thread;
		lent[0] = worker(), lent[1] = worker();
		if (pthread_create(&thread, NULL, borrow, NULL))
			fail("pthread_create", round);
		/* In vain, for as long as the others live, and a little longer. */
		while (__atomic_load_n(&rounds, __ATOMIC_SEQ_CST) == round)
			ucp_worker_progress(own);
		for (int i = 0; i < 50; i++)
			ucp_worker_progress(own);
		pthread_join(thread, NULL);
	}
	close_way(own, other, end);
	ucp_worker_destroy(other);
	ucp_worker_destroy(own);
}

/* ---- wait ---- */

struct end {
	ucp_worker_h worker;
	ucp_ep_h to;
	int first;
};

static void sleep_until(ucp_worker_h worker, void *request)
{
	int fd;
	must(ucp_worker_get_efd(worker, &fd), "ucp_worker_get_efd");
	while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS) {
		if (ucp_worker_progress(worker))
			continue;
		ucs_status_t armed = ucp_worker_arm(worker);
		if (armed == UCS_ERR_BUSY)
			continue;
		must(armed, "ucp_worker_arm");
		struct pollfd one = {.fd = fd, .events = POLLIN};
		if (poll(&one, 1, 20000) == 0)
			fail("nobody woke it", 0);
	}
	if (UCS_PTR_IS_PTR(request))
		ucp_request_free(request);
}

static void *play(void *given)
{
	struct end *it = given;
	ucp_request_param_t none = {0};
	char *bytes = malloc(100000);
	for (int i = 0; i < 400; i++) {
		size_t len = i % 5 ? 50 : 100000;
		if (i % 2 == it->first) {
			memset(bytes, i, len);
			if (i % 50 == 0)
				usleep(3000);
			sleep_until(it->worker, ucp_tag_send_nbx(it->to, bytes, len, TAG, &none));
		} else {
			sleep_until(it->worker, ucp_tag_recv_nbx(it->worker, bytes, len, TAG, UINT64_MAX, &none));
			if (bytes[0] != (char)i || bytes[len - 1] != (char)i)
				fail("a wrong byte", i);
		}
	}
	free(bytes);
	return NULL;
}

/* How many milliseconds of processor time this thread has used. */
static long used(void)
{
	struct rusage now;
	getrusage(RUSAGE_THREAD, &now);
	return (now.ru_utime.tv_sec + now.ru_stime.tv_sec) * 1000 + (now.ru_utime.tv_usec + now.ru_stime.tv_usec) / 1000;
}

static void wait_for_each_other(void)
{
	struct end a = {worker(), NULL, 0}, b = {worker(), NULL, 1};
	a.to = way(a.worker, b.worker), b.to = way(b.worker, a.worker);
	pthread_t thread;
	if (pthread_create(&thread, NULL, play, &b))
		fail("pthread_create", 0);
	play(&a);
	pthread_join(thread, NULL);
	/* Nothing comes: the descriptor is quiet. */
	int fd, quiet = 0;
	must(ucp_worker_get_efd(a.worker, &fd), "ucp_worker_get_efd");
	for (int i = 0; i < 100 && !quiet; i++) {
		while (ucp_worker_progress(a.worker) || ucp_worker_progress(b.worker))
			;
		if (ucp_worker_arm(a.worker) != UCS_OK)
			continue;
		struct pollfd one = {.fd = fd, .events = POLLIN};
		quiet = poll(&one, 1, 20) == 0;
	}
	if (!quiet)
		fail("the descriptor is never quiet", used());
	close_way(a.worker, b.worker, a.to);
	close_way(b.worker, a.worker, b.to);
	ucp_worker_destroy(a.worker);
	ucp_worker_destroy(b.worker);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	ucp_params_t with = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
			     .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
			     .mt_workers_shared = 1};
	must(ucp_init(&with, NULL, &context), "ucp_init");
	if (!strcmp(what, "order"))
		order();
	else if (!strcmp(what, "threads"))
		threads();
	else if (!strcmp(what, "wait"))
		wait_for_each_other();
	else
		fail("which?", 0);
	ucp_cleanup(context);
	printf("all well\n");
	return 0;
}
