/* Sockets between machines: an echo, and one that sends a pattern and reads it back.
 * vsock serve PORT CHUNK | vsock call CID PORT BYTES CHUNK */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <linux/vm_sockets.h>

static unsigned char buffer[1 << 20];

static void die(const char *what) {
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

static unsigned char pattern(size_t at) {
	return (unsigned char)(at * 31 + (at >> 8) * 7 + (at >> 16));
}

static void put(int fd, size_t len) {
	for (size_t done = 0; done < len;) {
		ssize_t n = write(fd, buffer + done, len - done);
		if (n < 0)
			die("write");
		done += (size_t)n;
	}
}

static int serve(unsigned port, size_t chunk) {
	struct sockaddr_vm at = { .svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY, .svm_port = port };
	int listener = socket(AF_VSOCK, SOCK_STREAM, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 8))
		die("listen");
	printf("listening\n");
	fflush(stdout);
	int fd = accept(listener, NULL, NULL);
	if (fd < 0)
		die("accept");
	ssize_t n;
	while ((n = read(fd, buffer, chunk)) > 0)
		put(fd, (size_t)n);
	if (n < 0)
		die("read");
	return 0;
}

static int call(unsigned cid, unsigned port, size_t bytes, size_t chunk) {
	struct sockaddr_vm at = { .svm_family = AF_VSOCK, .svm_cid = cid, .svm_port = port };
	int fd = socket(AF_VSOCK, SOCK_STREAM, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at))
		die("connect");
	pid_t child = fork();
	if (child == 0) {
		for (size_t done = 0; done < bytes;) {
			size_t len = bytes - done < chunk ? bytes - done : chunk;
			for (size_t n = 0; n < len; n++)
				buffer[n] = pattern(done + n);
			put(fd, len);
			done += len;
		}
		shutdown(fd, SHUT_WR);
		_exit(0);
	}
	size_t got = 0;
	ssize_t n;
	while ((n = read(fd, buffer, sizeof buffer)) > 0)
		for (ssize_t i = 0; i < n; i++, got++)
			if (buffer[i] != pattern(got)) {
				printf("byte %zu is wrong\n", got);
				return 1;
			}
	if (n < 0)
		die("read");
	int status = 0;
	if (waitpid(child, &status, 0) != child || status != 0)
		return 1;
	printf("%zu good\n", got);
	return got != bytes;
}

int main(int argc, char **argv) {
	if (argc == 4 && !strcmp(argv[1], "serve"))
		return serve((unsigned)atol(argv[2]), (size_t)atol(argv[3]));
	if (argc == 6 && !strcmp(argv[1], "call"))
		return call((unsigned)atol(argv[2]), (unsigned)atol(argv[3]), (size_t)atol(argv[4]), (size_t)atol(argv[5]));
	return 2;
}
