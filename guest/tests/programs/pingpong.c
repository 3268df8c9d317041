// A plain program over TCP that sleeps in poll.
//
//   pingpong serve PORT                         answers one connection, each 64 bytes with the same 64
//   pingpong ask ADDRESS PORT COUNT PAUSE       asks so often, with so many milliseconds between; prints the median in microseconds
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 64 };

static void must(int good, const char *what)
{
	if (!good) {
		perror(what);
		exit(1);
	}
}

static int whole(int fd, char *bytes)
{
	for (int have = 0; have < SIZE;) {
		struct pollfd readable = { .fd = fd, .events = POLLIN };

		must(poll(&readable, 1, -1) == 1, "poll");
		ssize_t n = read(fd, bytes + have, SIZE - have);

		if (n == 0 && have == 0)
			return 0;
		must(n > 0, "read");
		have += n;
	}
	return 1;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	struct sockaddr_in name = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	char bytes[SIZE], back[SIZE];

	if (argc == 3 && !strcmp(argv[1], "serve")) {
		name.sin_port = htons(atoi(argv[2]));
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		must(bind(fd, (void *)&name, sizeof(name)) == 0 && listen(fd, 1) == 0, "listen");
		int peer = accept(fd, NULL, NULL);

		must(peer >= 0, "accept");
		setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		while (whole(peer, bytes))
			must(write(peer, bytes, SIZE) == SIZE, "write");
		return 0;
	}
	if (argc != 6 || strcmp(argv[1], "ask"))
		return 2;
	int count = atoi(argv[4]), pause = atoi(argv[5]);
	double *took = calloc(count, sizeof(*took));

	name.sin_port = htons(atoi(argv[3]));
	must(took && inet_pton(AF_INET, argv[2], &name.sin_addr) == 1, "arguments");
	int tries = 100;
	while (connect(fd, (void *)&name, sizeof(name)) != 0) {
		must(--tries > 0, "connect");
		usleep(100000);
		close(fd);
		fd = socket(AF_INET, SOCK_STREAM, 0);
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	for (int i = 0; i < count; i++) {
		struct timespec from, to;

		memset(bytes, i, SIZE);
		clock_gettime(CLOCK_MONOTONIC, &from);
		must(write(fd, bytes, SIZE) == SIZE, "write");
		must(whole(fd, back), "answer");
		clock_gettime(CLOCK_MONOTONIC, &to);
		if (memcmp(bytes, back, SIZE)) {
			puts("wrong bytes");
			return 1;
		}
		took[i] = (to.tv_sec - from.tv_sec) * 1e6 + (to.tv_nsec - from.tv_nsec) / 1e3;
		usleep(pause * 1000);
	}
	qsort(took, count, sizeof(*took), compare);
	printf("%.0f\n", took[count / 2]);
	return 0;
}
