// Request and response by datagrams, as netperf's UDP_RR.
//
//   udp serve PORT                        sends every datagram back
//   udp ask ADDRESS PORT BYTES SECONDS    one under way at a time; prints how many came back a second
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	struct sockaddr_in name = { .sin_family = AF_INET };
	socklen_t length = sizeof(name);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	static char bytes[65536];

	if (argc == 3 && !strcmp(argv[1], "serve")) {
		name.sin_port = htons(atoi(argv[2]));
		if (bind(fd, (void *)&name, length)) {
			perror("bind");
			return 1;
		}
		for (;;) {
			ssize_t n = recvfrom(fd, bytes, sizeof(bytes), 0, (void *)&name, &length);

			if (n >= 0)
				sendto(fd, bytes, n, 0, (void *)&name, length);
		}
	}
	if (argc != 6 || strcmp(argv[1], "ask")) {
		fprintf(stderr, "usage: udp serve PORT | ask ADDRESS PORT BYTES SECONDS\n");
		return 2;
	}
	// A datagram that is lost is asked for again.
	struct timeval patience = { .tv_usec = 200000 };

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	name.sin_port = htons(atoi(argv[3]));
	inet_pton(AF_INET, argv[2], &name.sin_addr);
	if (connect(fd, (void *)&name, length)) {
		perror("connect");
		return 1;
	}
	size_t size = atoi(argv[4]) % sizeof(bytes);
	double begun = now(), seconds = atof(argv[5]);
	long came = 0;

	while (now() - begun < seconds) {
		send(fd, bytes, size, 0);
		came += recv(fd, bytes, sizeof(bytes), 0) == (ssize_t)size;
	}
	printf("%.1f\n", came / (now() - begun));
	return 0;
}
