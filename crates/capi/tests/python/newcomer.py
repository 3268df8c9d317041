"""Written from docs/python.md alone, as by somebody who sees it for the first time: images from one
process to another, and jobs for three workers of whom one is killed."""

import multiprocessing
import os
import signal
import sys
import time

import ginnel


def camera(count):
    segment = ginnel.Segment.own()
    ginnel.Queue(capacity=4, message_size=100_000, senders=1).open_or_create(segment, "images")
    sender = ginnel.Sender.open(segment, "images")
    for number in range(count):
        with sender.loan(100_000, timeout=20) as loan:
            loan.view[:4] = number.to_bytes(4, "little")
            loan.view[4:] = bytes([number % 256]) * 99_996
            loan.send()
    sender.close()


def worker():
    segment = ginnel.Segment.own()
    jobs = ginnel.Semaphore.open(segment, "jobs")
    total = ginnel.Memory.open(segment, "total")
    mutex = ginnel.Mutex.open(segment, "total lock")
    while True:
        try:
            job = jobs.acquire(timeout=2)
        except ginnel.TimedOut:
            if int.from_bytes(total.read(0, 8), "little") >= 300:
                return  # all is done
            continue
        with mutex.lock(timeout=20) as guard:
            if guard.holder_died:
                guard.mark_consistent()
            value = int.from_bytes(total.read(0, 8), "little")
            time.sleep(0.001)
            total.write(0, (value + 1).to_bytes(8, "little"))
        job.use_up()


def main():
    segment = ginnel.Segment.own()
    ginnel.Queue(capacity=4, message_size=100_000, senders=1).open_or_create(segment, "images")
    receiver = ginnel.Receiver.open(segment, "images")
    context = multiprocessing.get_context("spawn")
    shoots = context.Process(target=camera, args=(50,))
    shoots.start()
    seen = 0
    while True:
        try:
            with receiver.recv(timeout=20) as message:
                number = int.from_bytes(message.view[:4], "little")
                assert number == seen and bytes(message.view[4:]) == bytes([number % 256]) * 99_996
                seen += 1
        except ginnel.Ended as ended:
            assert not ended.died
            break
    assert seen == 50, seen
    shoots.join()

    jobs = ginnel.Semaphore.create(segment, "jobs", 0, 1000)
    total = ginnel.Memory.create(segment, "total", 64)
    ginnel.Mutex.create(segment, "total lock")
    workers = [context.Process(target=worker) for _ in range(3)]
    for process in workers:
        process.start()
    jobs.add(300)
    while int.from_bytes(total.read(0, 8), "little") < 30:
        time.sleep(0.001)
    os.kill(workers[0].pid, signal.SIGKILL)
    for process in workers:
        process.join()
    done = int.from_bytes(total.read(0, 8), "little")
    assert done in (300, 301)  # what the dead one had in hand may have been counted twice
    print(f"{seen} images, {done} jobs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
