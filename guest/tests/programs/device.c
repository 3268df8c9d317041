// Tries the driver's interface, in a guest.
//
//   device rules DEVICE           each rule of ginnel.h; "good", or what is not so
//   device sysfs FILE             maps a file of sysfs; says why not
//   device spin DEVICE ADDRESS    maps all of it there, touches every page, and computes for ever
//   device put DEVICE OFFSET N    writes a word; get: prints one
//   device ring DEVICE PEER VECTOR
//   device flood DEVICE PEER SECONDS        rings all vectors without a pause; prints how often
//   device wait DEVICE VECTOR OFFSET|any   waits in poll, up to 30 s; "ready" and the count
//   device unplug DEVICE          maps, waits until the device goes, and tries everything again
#include "ginnel.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what) \
	do { \
		if (!(what)) { \
			printf("line %d: not so: %s (%s)\n", __LINE__, #what, strerror(errno)); \
			exit(1); \
		} \
	} while (0)

#define FAILS(call, with) CHECK((call) == -1 && errno == (with))

static struct ginnel_info info;

static int open_device(const char *name, int flags)
{
	int fd = open(name, flags | O_CLOEXEC);

	if (fd < 0) {
		printf("%s: %s\n", name, strerror(errno));
		exit(1);
	}
	CHECK(ioctl(fd, GINNEL_INFO, &info) == 0 && info.version == GINNEL_VERSION);
	return fd;
}

static volatile uint64_t *map(int fd, void *at)
{
	void *base = mmap(at, info.size, PROT_READ | PROT_WRITE, MAP_SHARED | (at ? MAP_FIXED : 0), fd, 0);

	CHECK(base != MAP_FAILED);
	return base;
}

static int ready(int fd, int milliseconds)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	CHECK(poll(&p, 1, milliseconds) >= 0);
	return p.revents;
}

static uint64_t count(int fd)
{
	uint64_t n = 0;

	CHECK(read(fd, &n, sizeof(n)) == sizeof(n));
	return n;
}

static int prove(int device, int fd, int side, int connected, int reserved, uint64_t *secret)
{
	struct ginnel_secret asked = { .fd = fd, .side = side, .connected = connected, .nonces = { 3, 4 } };

	asked.reserved[1] = reserved;
	if (ioctl(device, GINNEL_SECRET, &asked) != 0)
		return -1;
	*secret = asked.secret;
	return 0;
}

/* Secrets: of a connected TCP socket and nothing else, and both ends of one connection have the same. */
static void proofs(int device)
{
	struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(name);
	int udp = socket(AF_INET, SOCK_DGRAM, 0), listening = socket(AF_INET, SOCK_STREAM, 0);
	int fresh = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
	int local = socket(AF_UNIX, SOCK_STREAM, 0), pipes[2];
	uint64_t one, two, again;

	CHECK(pipe(pipes) == 0 && udp >= 0 && local >= 0 && fresh >= 0);
	CHECK(bind(listening, (void *)&name, sizeof(name)) == 0 && listen(listening, 1) == 0);
	CHECK(getsockname(listening, (void *)&name, &length) == 0);
	CHECK(connect(udp, (void *)&name, sizeof(name)) == 0);
	CHECK(connect(client, (void *)&name, sizeof(name)) == 0);
	int server = accept(listening, NULL, NULL);
	CHECK(server >= 0);

	FAILS(prove(device, udp, 0, 0, 0, &one), EINVAL);
	FAILS(prove(device, local, 0, 0, 0, &one), EINVAL);
	FAILS(prove(device, fresh, 0, 0, 0, &one), ENOTCONN);
	FAILS(prove(device, listening, 0, 0, 0, &one), ENOTCONN);
	FAILS(prove(device, pipes[0], 0, 0, 0, &one), ENOTSOCK);
	FAILS(prove(device, device, 0, 0, 0, &one), ENOTSOCK);
	FAILS(prove(device, -1, 0, 0, 0, &one), EBADF);
	FAILS(prove(device, 12345, 0, 0, 0, &one), EBADF);
	FAILS(prove(device, client, 2, 1, 0, &one), EINVAL);
	FAILS(prove(device, client, 0, 2, 0, &one), EINVAL);
	FAILS(prove(device, client, 0, 1, 1, &one), EINVAL);
	FAILS(ioctl(device, GINNEL_SECRET, NULL), EFAULT);

	CHECK(prove(device, client, 0, 1, 0, &one) == 0 && prove(device, server, 1, 0, 0, &two) == 0);
	CHECK(one == two);
	/* Bytes that went both ways change nothing. */
	CHECK(write(client, "ask", 3) == 3 && write(server, "answer", 6) == 6);
	CHECK(prove(device, client, 0, 1, 0, &again) == 0 && one == again);
	CHECK(prove(device, client, 1, 1, 0, &again) == 0 && again != one);
	/* Once the connection is gone there is nothing to prove. */
	struct linger reset = { 1, 0 };
	CHECK(setsockopt(server, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)) == 0 && close(server) == 0);
	FAILS(prove(device, client, 0, 1, 0, &one), ENOTCONN);
}

// Files that wait for one vector: an interrupt goes through them all, so there are only so many.
static void crowd(const char *name)
{
	const rlim_t most = 4096;
	const struct rlimit limit = { most + 100, most + 100 };
	struct ginnel_watch watch = { .offset = GINNEL_ALWAYS };
	int fds[most + 1];
	rlim_t n = 0;

	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	for (; n <= most; n++) {
		fds[n] = open_device(name, O_RDWR | O_NONBLOCK);
		if (ioctl(fds[n], GINNEL_WATCH, &watch))
			break;
	}
	// One of them is the caller's.
	CHECK(n == most - 1 && errno == ENOSPC);
	CHECK(ioctl(fds[n], GINNEL_RING, GINNEL_BELL(info.peer, 0)) == 0 && ready(fds[0], 0) == POLLIN && ready(fds[n], 0) == 0);
	// Who watches may change what for, and who goes makes room.
	CHECK(ioctl(fds[0], GINNEL_WATCH, &watch) == 0);
	close(fds[1]);
	CHECK(ioctl(fds[n], GINNEL_WATCH, &watch) == 0);
	for (rlim_t i = 0; i <= n; i++)
		close(fds[i]);
}

static void rules(const char *name)
{
	int fd = open_device(name, O_RDWR | O_NONBLOCK), reader = open_device(name, O_RDONLY);
	volatile uint64_t *words = map(fd, NULL);
	// In the last page: nobody else uses it in these tests.
	uint64_t place = info.size - 64, n;
	struct ginnel_watch watch = { .offset = place };
	uint32_t self = GINNEL_BELL(info.peer, 0);

	CHECK(memcmp((const void *)words, "GINNELSG", 8) == 0);
	CHECK(info.flags & GINNEL_DOORBELLS);

	FAILS(lseek(fd, 0, SEEK_SET), ESPIPE);
	// Maps: shared only, inside only, as the file was opened.
	FAILS((intptr_t)mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0), EINVAL);
	FAILS((intptr_t)mmap(NULL, info.size + 4096, PROT_READ, MAP_SHARED, fd, 0), EINVAL);
	FAILS((intptr_t)mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, info.size - 4096), EINVAL);
	FAILS((intptr_t)mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, info.size), EINVAL);
	FAILS((intptr_t)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, reader, 0), EACCES);
	volatile uint64_t *last = mmap(NULL, 4096, PROT_READ, MAP_SHARED, reader, info.size - 4096);
	CHECK(last != MAP_FAILED);
	words[(info.size - 8) / 8] = 4711;
	CHECK(last[511] == 4711);
	words[(info.size - 8) / 8] = 0;
	FAILS(mprotect((void *)last, 4096, PROT_READ | PROT_WRITE), EACCES);
	FAILS((intptr_t)mremap((void *)last, 4096, 8192, MREMAP_MAYMOVE), EFAULT);
	// Protection taken away and given back, and a child: the same memory.
	volatile uint64_t *page = words + (info.size - 4096) / 8;
	CHECK(mprotect((void *)page, 4096, PROT_READ) == 0 && mprotect((void *)page, 4096, PROT_READ | PROT_WRITE) == 0);
	page[0] = 1;
	pid_t child = fork();
	if (child == 0) {
		page[0]++;
		_exit(0);
	}
	CHECK(waitpid(child, NULL, 0) == child && page[0] == 2);
	page[0] = 0;
	// Nobody can pin it.
	int pipes[2];
	struct iovec piece = { (void *)page, 4096 };
	CHECK(pipe(pipes) == 0);
	FAILS(vmsplice(pipes[1], &piece, 1, 0), EFAULT);

	// Waiting: nothing is there; what is written is; once read it is gone.
	CHECK(ready(fd, 0) == 0);
	FAILS(read(fd, &n, sizeof(n)), EAGAIN);
	FAILS(read(fd, &n, 4), EINVAL);
	CHECK(write(fd, "x", 1) == 1 && write(fd, "x", 1) == 1 && ready(fd, 0) == POLLIN && count(fd) == 2 && ready(fd, 0) == 0);

	// Watching: the word decides.
	watch.vector = info.vectors;
	FAILS(ioctl(fd, GINNEL_WATCH, &watch), EINVAL);
	watch.vector = 0;
	watch.offset = place + 4;
	FAILS(ioctl(fd, GINNEL_WATCH, &watch), EINVAL);
	watch.offset = info.size;
	FAILS(ioctl(fd, GINNEL_WATCH, &watch), EINVAL);
	watch.offset = place;
	watch.reserved = 1;
	FAILS(ioctl(fd, GINNEL_WATCH, &watch), EINVAL);
	watch.reserved = 0;
	CHECK(ioctl(fd, GINNEL_WATCH, &watch) == 0);
	CHECK(ioctl(fd, GINNEL_RING, self) == 0 && ready(fd, 0) == 0);
	words[place / 8] = 1;
	CHECK(ioctl(fd, GINNEL_RING, self) == 0 && ready(fd, 0) == POLLIN && count(fd) == 1);
	words[place / 8] = 0;
	CHECK(ioctl(fd, GINNEL_RING, self) == 0 && ready(fd, 0) == 0);
	watch.offset = GINNEL_ALWAYS;
	CHECK(ioctl(fd, GINNEL_WATCH, &watch) == 0 && ioctl(fd, GINNEL_RING, self) == 0 && count(fd) == 1);
	if (info.vectors > 1) {
		CHECK(ioctl(fd, GINNEL_RING, self + 1) == 0 && ready(fd, 0) == 0);
	}

	crowd(name);
	CHECK(count(fd) == 1);

	// Ringing: only who may write; nobody need be there; not what no register takes.
	FAILS(ioctl(reader, GINNEL_RING, self), EBADF);
	CHECK(ioctl(fd, GINNEL_RING, GINNEL_BELL(65535, 255)) == 0);
	FAILS(ioctl(fd, GINNEL_RING, GINNEL_BELL(1, 256)), EINVAL);
	FAILS(ioctl(fd, 12345), ENOTTY);
	proofs(fd);
	puts("good");
}

static void spin(const char *name, void *at)
{
	volatile uint64_t *words = map(open_device(name, O_RDWR), at);
	volatile uint64_t sum = 0;

	for (uint64_t page = 0; page < info.size / 4096; page++)
		sum += words[page * 512];
	for (;;)
		sum++;
}

/* Rings every vector of a peer without a pause, for so many seconds. */
static void flood(const char *name, int peer, int seconds)
{
	int fd = open_device(name, O_RDWR);
	unsigned long rung = 0;

	for (time_t end = time(NULL) + seconds; time(NULL) < end;)
		for (int vector = 0; vector < 3; vector++, rung++)
			CHECK(ioctl(fd, GINNEL_RING, GINNEL_BELL(peer, vector)) == 0);
	printf("%lu\n", rung);
}

static void unplug(const char *name)
{
	int fd = open_device(name, O_RDWR), waiting = open_device(name, O_RDWR);
	volatile uint64_t *words = map(fd, NULL);
	struct ginnel_watch watch = { .offset = GINNEL_ALWAYS };
	uint64_t n;

	words[(info.size - 8) / 8] = 42;
	CHECK(ioctl(waiting, GINNEL_WATCH, &watch) == 0);
	puts("mapped");
	fflush(stdout);
	while (!(ready(waiting, 30000) & POLLHUP)) {
		// An announcement of the daemon's, perhaps. No end within the limit is the harness's to see.
		if (ready(waiting, 0) & POLLIN)
			count(waiting);
	}
	// Whether the memory was touched before or not: zeroes, which can be written.
	CHECK(words[(info.size - 8) / 8] == 0 && words[0] == 0);
	words[0] = 7;
	CHECK(words[0] == 7 && words[512] == 0);
	FAILS(ioctl(fd, GINNEL_INFO, &info), ENODEV);
	FAILS(ioctl(fd, GINNEL_RING, GINNEL_BELL(1, 0)), ENODEV);
	FAILS(prove(fd, fd, 0, 0, 0, (uint64_t[2]) { 0 }), ENODEV);
	FAILS(ioctl(fd, GINNEL_WATCH, &watch), ENODEV);
	FAILS(read(fd, &n, sizeof(n)), ENODEV);
	FAILS(write(fd, &n, 1), ENODEV);
	FAILS((intptr_t)mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0), ENODEV);
	pid_t child = fork();
	if (child == 0)
		_exit(words[0] == 7 && words[1024] == 0 ? 0 : 1);
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	// What is its own now stays its own.
	usleep(100000);
	CHECK(words[0] == 7);
	puts("good");
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";

	if (!strcmp(what, "rules")) {
		rules(argv[2]);
	} else if (!strcmp(what, "sysfs")) {
		int fd = open(argv[2], O_RDWR);
		struct stat stat;

		CHECK(fd >= 0 && fstat(fd, &stat) == 0);
		puts(mmap(NULL, stat.st_size, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? strerrorname_np(errno) : "mapped");
	} else if (!strcmp(what, "spin") && argc == 4) {
		spin(argv[2], (void *)strtoull(argv[3], NULL, 0));
	} else if (!strcmp(what, "put") && argc == 5) {
		map(open_device(argv[2], O_RDWR), NULL)[strtoull(argv[3], NULL, 0) / 8] = strtoull(argv[4], NULL, 0);
	} else if (!strcmp(what, "get") && argc == 4) {
		printf("%llu\n", (unsigned long long)map(open_device(argv[2], O_RDWR), NULL)[strtoull(argv[3], NULL, 0) / 8]);
	} else if (!strcmp(what, "flood") && argc == 5) {
		flood(argv[2], atoi(argv[3]), atoi(argv[4]));
	} else if (!strcmp(what, "ring") && argc == 5) {
		CHECK(ioctl(open_device(argv[2], O_RDWR), GINNEL_RING, GINNEL_BELL(atoi(argv[3]), atoi(argv[4]))) == 0);
	} else if (!strcmp(what, "wait") && argc == 5) {
		int fd = open_device(argv[2], O_RDWR);
		struct ginnel_watch watch = { .vector = atoi(argv[3]) };

		watch.offset = strcmp(argv[4], "any") ? strtoull(argv[4], NULL, 0) : GINNEL_ALWAYS;
		CHECK(ioctl(fd, GINNEL_WATCH, &watch) == 0);
		puts("waiting");
		fflush(stdout);
		CHECK(ready(fd, 30000) == POLLIN);
		printf("ready %llu\n", (unsigned long long)count(fd));
	} else if (!strcmp(what, "unplug")) {
		unplug(argv[2]);
	} else {
		fprintf(stderr, "usage: see the head of device.c\n");
		return 2;
	}
	return 0;
}
