"""Two ends in Python of the bench of named objects: a ping-pong of loans, of which the first bytes
are written and read, as `src/objects/queues.rs` does it. Arguments: bytes, seconds, processor."""

import os
import sys
import time

import ginnel

BATCH = 16
SIZE, SECONDS = int(sys.argv[1]), float(sys.argv[2])
if sys.argv[3]:
    os.sched_setaffinity(0, {int(sys.argv[3])})
FIRST = os.environ["GINNEL_BENCH_END"] == "0"
segment = ginnel.Segment.open("bench")


def opened(kind, name):
    """Once the other end has made it."""
    until = time.monotonic() + 10
    while True:
        try:
            return kind.open(segment, name)
        except ginnel.NotFound:
            if time.monotonic() > until:
                raise


if FIRST:
    queue = ginnel.Queue(capacity=4, message_size=SIZE, senders=1, loans=1)
    for name in ("there", "back"):
        queue.create(segment, name)
sender = opened(ginnel.Sender, "there" if FIRST else "back")
receiver = opened(ginnel.Receiver, "back" if FIRST else "there")


def send():
    loan = sender.loan(SIZE)
    loan.view[:8] = b"a frame."
    loan.send()


def take():
    with receiver.recv() as message:
        return bytes(message.view[:8])


def exchange():
    for _ in range(BATCH):
        send()
        take()


if FIRST:
    exchange()
    samples, until = [], time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        began = time.perf_counter_ns()
        exchange()
        samples.append((time.perf_counter_ns() - began) / (2 * BATCH))
    sender.close()
    samples.sort()
    print(f"result samples={len(samples)} p50_ns={samples[len(samples) // 2]:.1f}\nend")
else:
    try:
        while True:
            take()
            send()
    except ginnel.Ended:
        pass
