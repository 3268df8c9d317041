"""A client under `ginnel run`: its connection is one, and moves into a ring."""

import socket
import sys

import ginnel_cache

host, port = sys.argv[1].split(":")


def made():
    with socket.create_connection((host, int(port))) as probe:
        probe.sendall(b"stats\r\n")
        said = b""
        while not said.endswith(b"END\r\n"):
            said += probe.recv(65536)
    line = next(line for line in said.split(b"\r\n") if b"total_connections" in line)
    return int(line.split()[-1])


cache = ginnel_cache.Client(sys.argv[1])
assert not cache.is_neighbour and "to nobody" in cache.why, cache.why
cache.set("key", b"x" * 1000)
before = made()
for _ in range(2000):
    assert cache.get("key") == b"x" * 1000
assert made() - before == 1, f"{made() - before - 1} connections too many"
print("direct %d asked %d" % cache.counts)
