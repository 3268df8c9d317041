/* A program on libfabric: two processes, each with an endpoint, and every call of the provider that MPI does
 * not make, or that a test of MPI would not miss. Says "all well".
 */
#include <poll.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *who;
#define MUST(what) do { long got_ = (what); if (got_) { \
	fprintf(stderr, "%s:%d: %s: %ld (%s)\n", who, __LINE__, #what, got_, fi_strerror((int)-got_)); exit(1); } } while (0)
#define IS(what, wanted) do { long got_ = (long)(what); if (got_ != (long)(wanted)) { \
	fprintf(stderr, "%s:%d: %s is %ld\n", who, __LINE__, #what, got_); exit(1); } } while (0)

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_ep *ep;
static struct fid_cq *tx, *rx;
static struct fid_av *av;
static struct fid_cntr *sent, *written;
static struct fid_mr *mr;
static fi_addr_t other;
static int in, out;
static char memory[100000], mine[100000], more[100000];
static uint64_t key, base, their_key, their_base;

static void tell(const void *at, size_t n) { IS(write(out, at, n), n); }
static void hear(void *at, size_t n) { for (size_t got = 0; got < n;) { ssize_t g = read(in, (char *)at + got, n - got); if (g <= 0) exit(1); got += (size_t)g; } }
static void together(void) { char c = 1; tell(&c, 1); hear(&c, 1); }

/* The next completion; its error where it has one. */
static int next_at(struct fid_cq *cq, struct fi_cq_tagged_entry *entry, int line)
{
	struct fi_cq_err_entry failed = {0};
	ssize_t got = fi_cq_sread(cq, entry, 1, NULL, 20000);
	if (got == 1)
		return 0;
	if (got != -FI_EAVAIL) {
		fprintf(stderr, "%s:%d: no completion: %ld\n", who, line, (long)got);
		exit(1);
	}
	IS(fi_cq_readerr(cq, &failed, 0), 1);
	entry->op_context = failed.op_context;
	entry->len = failed.olen;
	return failed.err;
}

#define next(cq, entry) next_at(cq, entry, __LINE__)

static void open_all(void)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY | FI_MR_ALLOCATED;
	hints->fabric_attr->prov_name = strdup("ginnel");
	MUST(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info));
	IS(info->domain_attr->mr_mode, hints->domain_attr->mr_mode);
	hints->caps = FI_COLLECTIVE;
	struct fi_info *none;
	IS(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &none), -FI_ENODATA);
	MUST(fi_fabric(info->fabric_attr, &fabric, NULL));
	MUST(fi_domain(fabric, info, &domain, NULL));
	struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD};
	MUST(fi_cq_open(domain, &attr, &rx, NULL));
	attr.wait_obj = FI_WAIT_UNSPEC;
	MUST(fi_cq_open(domain, &attr, &tx, NULL));
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	MUST(fi_av_open(domain, &av_attr, &av, NULL));
	struct fi_cntr_attr cntr_attr = {0};
	MUST(fi_cntr_open(domain, &cntr_attr, &sent, NULL));
	MUST(fi_cntr_open(domain, &cntr_attr, &written, NULL));
	MUST(fi_endpoint(domain, info, &ep, NULL));
	MUST(fi_ep_bind(ep, &tx->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION));
	MUST(fi_ep_bind(ep, &rx->fid, FI_RECV));
	IS(fi_enable(ep), -FI_ENOAV);
	MUST(fi_ep_bind(ep, &av->fid, 0));
	MUST(fi_ep_bind(ep, &sent->fid, FI_SEND));
	MUST(fi_ep_bind(ep, &written->fid, FI_WRITE | FI_READ));
	MUST(fi_enable(ep));
	MUST(fi_mr_reg(domain, memory, sizeof(memory), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL));
	key = fi_mr_key(mr);
	base = (uint64_t)memory;
	fi_freeinfo(hints);
	fi_freeinfo(info);
}

static void exchange_names(void)
{
	char name[64], theirs[64], again[64], text[80];
	size_t len = 4, full;
	IS(fi_getname(&ep->fid, name, &len), -FI_ETOOSMALL);
	full = len;
	MUST(fi_getname(&ep->fid, name, &len));
	tell(name, full);
	hear(theirs, full);
	IS(fi_av_insert(av, theirs, 1, &other, 0, NULL), 1);
	/* Entered once more, and that removed again: messages are still of the first. */
	fi_addr_t twice;
	IS(fi_av_insert(av, theirs, 1, &twice, 0, NULL), 1);
	MUST(fi_av_remove(av, &twice, 1, 0));
	len = sizeof(again);
	MUST(fi_av_lookup(av, other, again, &len));
	IS(memcmp(again, theirs, full), 0);
	len = sizeof(text);
	IS(strncmp(fi_av_straddr(av, theirs, text, &len), "ginnel://", 9), 0);
	/* A name of another segment, and one that is none. */
	fi_addr_t bad[2];
	char two[128];
	memcpy(two, theirs, full);
	two[8] ^= 1;
	memset(two + full, 7, full);
	IS(fi_av_insert(av, two, 2, bad, 0, NULL), 0);
	IS(bad[0] == FI_ADDR_NOTAVAIL && bad[1] == FI_ADDR_NOTAVAIL, 1);
	IS(fi_send(ep, mine, 1, NULL, 77, NULL), -FI_EINVAL);
	tell(&key, 8), tell(&base, 8);
	hear(&their_key, 8), hear(&their_base, 8);
}

static void first(void)
{
	struct fi_cq_tagged_entry entry;
	struct fi_context a, b;
	int fd, ms;

	/* A descriptor that becomes readable when a message comes. */
	MUST(fi_recv(ep, mine, 100, NULL, FI_ADDR_UNSPEC, &a));
	MUST(fi_control(&rx->fid, FI_GETWAIT, &fd));
	struct fid *fids[] = {&rx->fid};
	for (;;) {
		fi_addr_t from = 0;
		ssize_t got = fi_cq_readfrom(rx, &entry, 1, &from);
		if (got == 1) {
			IS(from, other);
			break;
		}
		IS(got, -FI_EAGAIN);
		if (fi_trywait(fabric, fids, 1) == 0) {
			struct pollfd waits = {.fd = fd, .events = POLLIN};
			ms = poll(&waits, 1, 20000);
			IS(ms, 1);
		}
	}
	IS(entry.op_context, &a);
	IS(entry.flags, FI_RECV | FI_MSG);
	IS(strcmp(mine, "wakes"), 0);
	IS(fi_cq_sread(rx, &entry, 1, NULL, 30), -FI_EAGAIN);

	/* From this sender alone, by two pieces. */
	struct iovec two[] = {{mine, 3}, {more, 100}};
	struct fi_msg_tagged message = {.msg_iov = two, .iov_count = 2, .addr = other, .tag = 5, .ignore = 2, .context = &b};
	MUST(fi_trecvmsg(ep, &message, FI_COMPLETION));
	together();
	IS(next(rx, &entry), 0);
	IS(entry.tag, 7);
	IS(entry.data, 4711);
	IS(entry.flags, FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA);
	IS(memcmp(mine, "two", 3) || memcmp(more, " pieces", 8), 0);

	/* Looked for, claimed, thrown away. */
	together();
	message = (struct fi_msg_tagged){.msg_iov = two, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = 9, .context = &a};
	two[0].iov_len = 100;
	MUST(fi_trecvmsg(ep, &message, FI_PEEK));
	IS(next(rx, &entry), FI_ENOMSG);
	message.tag = 1;
	MUST(fi_trecvmsg(ep, &message, FI_PEEK | FI_CLAIM));
	IS(next(rx, &entry), 0);
	IS(entry.len, 50);
	MUST(fi_trecv(ep, more, 100, NULL, FI_ADDR_UNSPEC, 1, 0, &b));
	IS(next(rx, &entry), 0);
	IS(entry.op_context == &b && entry.len == 51, 1);
	MUST(fi_trecvmsg(ep, &message, FI_CLAIM));
	IS(next(rx, &entry), 0);
	IS(entry.op_context == &a && entry.len == 50, 1);
	message.tag = 2;
	MUST(fi_trecvmsg(ep, &message, FI_PEEK | FI_CLAIM));
	IS(next(rx, &entry), 0);
	MUST(fi_trecvmsg(ep, &message, FI_CLAIM | FI_DISCARD));
	IS(next(rx, &entry), 0);
	IS(fi_trecvmsg(ep, &message, FI_CLAIM), -FI_ENOMSG);

	/* Cancelled; cut. */
	MUST(fi_trecv(ep, more, 100, NULL, FI_ADDR_UNSPEC, 123, 0, &b));
	IS(fi_cancel(&ep->fid, &b), 0);
	IS(next(rx, &entry), FI_ECANCELED);
	IS(entry.op_context, &b);
	IS(fi_cancel(&ep->fid, &b), -FI_ENOENT);
	MUST(fi_trecv(ep, more, 100, NULL, FI_ADDR_UNSPEC, 3, 0, &b));
	together();
	IS(next(rx, &entry), FI_ETRUNC);
	IS(entry.len, 20000 - 100);

	/* Several into one buffer. */
	size_t least = 100;
	MUST(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)));
	struct iovec all = {mine, 1000};
	struct fi_msg several = {.msg_iov = &all, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &a};
	MUST(fi_recvmsg(ep, &several, FI_MULTI_RECV | FI_COMPLETION));
	together();
	for (int i = 0; i < 4; i++) {
		IS(next(rx, &entry), 0);
		IS(entry.len, 250);
		IS((char *)entry.buf - mine, 250 * i);
		IS(!!(entry.flags & FI_MULTI_RECV), i == 3);
		IS(mine[250 * i + 249], i);
	}
	/* The other writes, reads and changes memory, of which this end hears nothing. */
	struct pollfd told = {.fd = in, .events = POLLIN};
	while (poll(&told, 1, 0) == 0)
		IS(fi_cq_read(rx, &entry, 1), -FI_EAGAIN);
	together();
	IS(memory[10] == 'w' && memory[99999] == 'w' && memory[9] == 0, 1);
	IS(*(uint64_t *)(memory + 8000), 0);
	together();
}

static void second(void)
{
	struct fi_cq_tagged_entry entry;
	struct fi_context a;
	uint64_t before, value, compare;

	usleep(300000);
	IS(fi_cntr_read(sent), 0);
	MUST(fi_inject(ep, "wakes", 6, other));
	IS(fi_cq_sread(tx, &entry, 1, NULL, 30), -FI_EAGAIN);
	MUST(fi_cntr_wait(sent, 1, 20000));
	IS(fi_cntr_wait(sent, 2, 20), -FI_ETIMEDOUT);
	together();
	MUST(fi_tsenddata(ep, "two pieces", 11, NULL, 4711, other, 7, NULL));

	memset(mine, 1, sizeof(mine));
	MUST(fi_tsend(ep, mine, 50, NULL, other, 1, NULL));
	MUST(fi_tsend(ep, mine, 51, NULL, other, 1, NULL));
	/* Not told of until it has been received. */
	struct iovec large = {mine, 30000};
	struct fi_msg_tagged message = {.msg_iov = &large, .iov_count = 1, .addr = other, .tag = 2, .context = &a};
	MUST(fi_tsendmsg(ep, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE));
	together();
	IS(next(tx, &entry), 0);
	IS(entry.op_context, &a);
	IS(entry.flags, FI_SEND | FI_TAGGED);
	together();
	MUST(fi_tsend(ep, mine, 20000, NULL, other, 3, NULL));
	/* Progress is made in calls: the pipe would wait for the other, and that one for this. */
	MUST(fi_cntr_wait(sent, 6, 20000));
	together();
	for (int i = 0; i < 4; i++) {
		memset(mine, i, 250);
		MUST(fi_inject(ep, mine, 250, other));
	}
	IS(fi_inject(ep, mine, 100000, other), -FI_EMSGSIZE);
	/* The same by what the endpoint was told. */
	uint64_t flags = FI_TRANSMIT | FI_INJECT;
	MUST(fi_control(&ep->fid, FI_SETOPSFLAG, &flags));
	IS(fi_send(ep, mine, sizeof(mine), NULL, other, NULL), -FI_EMSGSIZE);
	IS(fi_write(ep, mine, sizeof(mine), NULL, other, their_base, their_key, NULL), -FI_EMSGSIZE);
	flags = FI_TRANSMIT;
	MUST(fi_control(&ep->fid, FI_SETOPSFLAG, &flags));
	/* All that was begun has ended: there is no completion of it, but a count. */
	MUST(fi_cntr_wait(sent, 10, 20000));

	/* Memory of the other. */
	memset(mine, 'w', sizeof(mine));
	MUST(fi_write(ep, mine, 99990, NULL, other, their_base + 10, their_key, NULL));
	MUST(fi_cntr_wait(written, 1, 20000));
	memset(more, 0, sizeof(more));
	MUST(fi_read(ep, more, 99990, NULL, other, their_base + 10, their_key, NULL));
	MUST(fi_cntr_wait(written, 2, 20000));
	IS(memcmp(more, mine, 99990), 0);
	struct fi_msg_rma outside = {.msg_iov = &large, .iov_count = 1, .addr = other, .context = &a, .rma_iov_count = 1,
		.rma_iov = &(struct fi_rma_iov){their_base + 99999, 2, their_key}};
	large.iov_len = 2;
	MUST(fi_writemsg(ep, &outside, FI_COMPLETION));
	IS(next(tx, &entry), FI_EACCES);
	IS(fi_cntr_readerr(written), 1);

	size_t count;
	MUST(fi_atomicvalid(ep, FI_UINT64, FI_SUM, &count));
	IS(fi_atomicvalid(ep, FI_LONG_DOUBLE, FI_SUM, &count), -FI_EOPNOTSUPP);
	value = 0;
	MUST(fi_inject_write(ep, &value, 8, other, their_base + 8000, their_key));
	MUST(fi_cntr_wait(written, 3, 20000));
	value = 40;
	MUST(fi_atomic(ep, &value, 1, NULL, other, their_base + 8000, their_key, FI_UINT64, FI_SUM, NULL));
	MUST(fi_cntr_wait(written, 4, 20000));
	value = 2;
	MUST(fi_fetch_atomic(ep, &value, 1, NULL, &before, NULL, other, their_base + 8000, their_key, FI_UINT64, FI_SUM, NULL));
	MUST(fi_cntr_wait(written, 5, 20000));
	IS(before, 40);
	value = 0, compare = 42;
	MUST(fi_compare_atomic(ep, &value, 1, NULL, &compare, NULL, &before, NULL, other, their_base + 8000, their_key,
			       FI_UINT64, FI_CSWAP, NULL));
	MUST(fi_cntr_wait(written, 6, 20000));
	IS(before, 42);
	together();
	together();
}

int main(void)
{
	int up[2], down[2], status = 0;
	MUST(pipe(up));
	MUST(pipe(down));
	pid_t child = fork();
	who = child ? "first" : "second";
	in = child ? up[0] : down[0];
	out = child ? down[1] : up[1];
	alarm(60);
	open_all();
	exchange_names();
	if (child)
		first();
	else
		second();
	IS(fi_close(&av->fid), -FI_EBUSY);
	MUST(fi_close(&mr->fid));
	MUST(fi_close(&ep->fid));
	MUST(fi_close(&sent->fid));
	MUST(fi_close(&written->fid));
	MUST(fi_close(&av->fid));
	MUST(fi_close(&rx->fid));
	IS(fi_close(&domain->fid), -FI_EBUSY);
	MUST(fi_close(&tx->fid));
	MUST(fi_close(&domain->fid));
	MUST(fi_close(&fabric->fid));
	if (child && (waitpid(child, &status, 0) != child || status))
		return 1;
	if (child)
		puts("all well");
	return 0;
}
