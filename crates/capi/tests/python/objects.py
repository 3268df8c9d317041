"""Each object from two processes; deaths, time limits, views, forks, event loops."""

import asyncio
import copy
import os
import select
import signal
import subprocess
import sys
import threading
import time
import unittest

import ginnel

segment = ginnel.Segment.own()


def other(code):
    """Another process, in which `code` runs with `segment` at hand."""
    program = "import ginnel, os, sys, time\nsegment = ginnel.Segment.own()\n" + code
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)


def said(process):
    line = process.stdout.readline().strip()
    return line


def killed(process):
    process.kill()
    process.wait()
    process.stdout.close()


def ended(process):
    process.stdout.close()
    return process.wait(60)


class Objects(unittest.TestCase):
    def name(self):
        return self.id()

    def test_memory_is_the_others_too(self):
        memory = ginnel.Memory.create(segment, self.name(), 5000)
        memory.write(4990, b"0123456789")
        process = other(
            f"memory = ginnel.Memory.open(segment, {self.name()!r})\n"
            "print(memory.read(4990, 10).decode(), len(memory), flush=True)\n"
            "memory.in_place()[0] = 7\n"
        )
        self.assertEqual(said(process), "0123456789 5000")
        self.assertEqual(ended(process), 0)
        self.assertEqual(memory.read(0, 1), b"\x07")
        with self.assertRaises(ginnel.Error):
            memory.read(4995, 6)
        with self.assertRaises(ginnel.Taken):
            ginnel.Memory.create(segment, self.name(), 5000)
        with self.assertRaises(ginnel.NotFound):
            ginnel.Memory.open(segment, "none")

    def test_views_keep_memory(self):
        memory = ginnel.Memory.create(segment, self.name(), 64)
        view = memory.in_place()
        part = view[8:16]
        view.release()
        with self.assertRaises(BufferError):
            memory.close()
        part[0] = 5
        del part, view
        memory.close()
        with self.assertRaises(ginnel.Error):
            memory.read(0, 1)

    def test_queue_copies_and_loans(self):
        ginnel.Queue(capacity=4, message_size=1 << 20).create(segment, self.name())
        receiver = ginnel.Receiver.open(segment, self.name())
        process = other(
            f"sender = ginnel.Sender.open(segment, {self.name()!r})\n"
            "sender.send(b'copied'); sender.send(bytearray(b'array')); sender.send(b'')\n"
            "loan = sender.loan(1 << 20)\n"
            "view = loan.view; view[-3:] = b'end'; del view\n"
            "loan.send()\n"
            "sender.loan(10).send(5)\n"
        )
        self.assertEqual(receiver.read(20), b"copied")
        self.assertEqual(receiver.read(20), b"array")
        self.assertEqual(receiver.read(20), b"")
        message = receiver.recv(20)
        self.assertEqual((len(message), bytes(message.view[-3:])), (1 << 20, b"end"))
        with self.assertRaises(TypeError):
            message.view[0] = 1
        view = message.view
        with self.assertRaises(BufferError):
            message.drop()
        with self.assertRaises(ginnel.Error):
            receiver.close()
        del view
        message.drop()
        with self.assertRaises(ginnel.Error):
            message.view
        with receiver.recv(20) as short:
            self.assertEqual(len(short), 5)
        self.assertEqual(ended(process), 0)
        with self.assertRaises(ginnel.Ended) as caught:
            receiver.recv(20)
        self.assertFalse(caught.exception.died)

    def test_a_message_that_nobody_has_is_given_back(self):
        ginnel.Queue(capacity=2, message_size=8, loans=1).create(segment, self.name())
        receiver = ginnel.Receiver.open(segment, self.name())
        sender = ginnel.Sender.open(segment, self.name(), ginnel.WhenFull.REFUSE)
        for number in range(20):
            sender.send(bytes([number]))
            self.assertEqual(receiver.recv(0).view[0], number)

    def test_a_sender_that_died_is_told(self):
        ginnel.Queue().create(segment, self.name())
        receiver = ginnel.Receiver.open(segment, self.name())
        process = other(
            f"sender = ginnel.Sender.open(segment, {self.name()!r})\n"
            "sender.send(b'last'); loan = sender.loan(10)\n"
            "print('ready', flush=True); time.sleep(60)\n"
        )
        self.assertEqual(said(process), "ready")
        killed(process)
        self.assertEqual(receiver.read(20), b"last")
        with self.assertRaises(ginnel.Ended) as caught:
            receiver.recv(20)
        self.assertTrue(caught.exception.died)

    def test_mutex_tells_of_the_dead(self):
        mutex = ginnel.Mutex.create(segment, self.name())
        with mutex.lock() as guard:
            self.assertFalse(guard.holder_died)
        process = other(
            f"guard = ginnel.Mutex.open(segment, {self.name()!r}).lock()\n"
            "print('held', flush=True); time.sleep(60)\n"
        )
        self.assertEqual(said(process), "held")
        with self.assertRaises(ginnel.WouldBlock):
            mutex.lock(0)
        with self.assertRaises(TimeoutError):
            mutex.lock(0.01)
        killed(process)
        with mutex.lock(20) as guard:
            self.assertTrue(guard.holder_died)
            guard.mark_consistent()
        with mutex.lock(20) as guard:
            self.assertFalse(guard.holder_died)
            with self.assertRaises(ginnel.Error):
                mutex.lock()

    def test_rwlock(self):
        lock = ginnel.RwLock.create(segment, self.name())
        process = other(
            f"lock = ginnel.RwLock.open(segment, {self.name()!r})\n"
            "with lock.read(): print('read', flush=True); time.sleep(60)\n"
        )
        self.assertEqual(said(process), "read")
        with lock.read(20):
            with self.assertRaises(ginnel.Error):
                lock.write(20)  # this thread reads
        with self.assertRaises(ginnel.WouldBlock):
            lock.write(0)
        killed(process)
        with lock.write(20) as guard:
            self.assertFalse(guard.holder_died)

    def test_semaphore(self):
        jobs = ginnel.Semaphore.create(segment, self.name(), 0, 3)
        with self.assertRaises(ginnel.WouldBlock):
            jobs.acquire(0)
        jobs.add(2)
        process = other(
            f"permit = ginnel.Semaphore.open(segment, {self.name()!r}).acquire()\n"
            "print('has one', flush=True); time.sleep(60)\n"
        )
        self.assertEqual(said(process), "has one")
        jobs.acquire().use_up()
        self.assertEqual(jobs.available, 0)
        killed(process)
        with jobs.acquire(20):
            pass
        self.assertEqual(jobs.available, 1)
        with self.assertRaises(ginnel.Error):
            jobs.add(3)

    def test_event_and_barrier(self):
        ready = ginnel.Event.create(segment, self.name())
        step = ginnel.Barrier.create(segment, self.name() + " step", 2)
        process = other(
            f"step = ginnel.Barrier.open(segment, {self.name() + ' step'!r})\n"
            f"ready = ginnel.Event.open(segment, {self.name()!r})\n"
            "ready.set(); last = step.wait(20); print(last, flush=True)\n"
        )
        ready.wait(20)
        self.assertTrue(ready.is_set())
        last = step.wait(20)
        self.assertEqual(said(process), str(not last))
        self.assertEqual(ended(process), 0)
        self.assertTrue(ready.reset())
        self.assertFalse(ready.reset())
        with self.assertRaises(ginnel.TimedOut):
            ready.wait(0.01)

    def test_a_barrier_is_broken_by_a_death(self):
        step = ginnel.Barrier.create(segment, self.name(), 2)
        process = other(
            f"step = ginnel.Barrier.open(segment, {self.name()!r})\n"
            "print('here', flush=True); time.sleep(60)\n"
        )
        self.assertEqual(said(process), "here")
        killed(process)
        with self.assertRaises(ginnel.Broken):
            step.wait(20)

    def test_threads_run_while_one_waits(self):
        event = ginnel.Event.create(segment, self.name())
        threading.Timer(0.05, event.set).start()
        event.wait(20)

    def test_a_child_of_fork_opens_anew(self):
        memory = ginnel.Memory.create(segment, self.name(), 8)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                memory.write(0, b"x")
            except ginnel.Forked:
                mine = ginnel.Segment.own()
                ginnel.Memory.open(mine, self.name()).write(0, b"child")
                status = 0
            os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(memory.read(0, 5), b"child")

    def test_descriptors(self):
        ginnel.Queue().create(segment, self.name())
        receiver = ginnel.Receiver.open(segment, self.name())
        sender = ginnel.Sender.open(segment, self.name())
        poll = select.epoll()
        poll.register(receiver.fileno(), select.EPOLLIN)
        threading.Timer(0.05, lambda: sender.send(b"now")).start()
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                got = receiver.read(0)
                break
            except ginnel.WouldBlock:
                poll.poll(10)
        self.assertEqual(got, b"now")
        poll.close()

    def test_event_loops(self):
        name = self.name()
        ginnel.Queue(capacity=2, message_size=16).create(segment, name + " there")
        ginnel.Queue(capacity=2, message_size=16).create(segment, name + " back")
        jobs = ginnel.Semaphore.create(segment, name, 0, 1)
        done = ginnel.Event.create(segment, name + " done", ginnel.Reset.AUTO)
        process = other(
            f"receiver = ginnel.Receiver.open(segment, {name + ' there'!r})\n"
            f"sender = ginnel.Sender.open(segment, {name + ' back'!r})\n"
            "for _ in range(300): sender.send(receiver.read(20)[::-1], 20)\n"
            f"ginnel.Semaphore.open(segment, {name!r}).add(1)\n"
            f"ginnel.Event.open(segment, {name + ' done'!r}).set()\n"
        )
        sender = ginnel.Sender.open(segment, name + " there")
        receiver = ginnel.Receiver.open(segment, name + " back")

        async def send():
            for number in range(150):
                await sender.send_async(b"%d" % number, 20)
                loan = await sender.loan_async(4, 20)
                loan.view[:] = b"%04d" % number
                loan.send()

        async def receive():
            for number in range(150):
                self.assertEqual((await receiver.read_async(20))[::-1], b"%d" % number)
                with await receiver.recv_async(20) as message:
                    self.assertEqual(bytes(message)[::-1], b"%04d" % number)

        async def both():
            ticks = 0

            async def tick():
                nonlocal ticks
                while True:
                    ticks += 1
                    await asyncio.sleep(0.001)

            ticking = asyncio.create_task(tick())
            await asyncio.gather(send(), receive())
            (await jobs.acquire_async(20)).use_up()
            await done.wait_async(20)
            with self.assertRaises(TimeoutError):
                await done.wait_async(0.01)
            ticking.cancel()
            self.assertGreater(ticks, 0)

        asyncio.run(both())
        self.assertEqual(ended(process), 0)

    def test_streams(self):
        name = self.name()
        listener = ginnel.Listener.open(segment, name)
        with self.assertRaises(ginnel.WouldBlock):
            listener.accept(0)
        process = other(
            f"stream = ginnel.Stream.connect(segment, {name!r}, 20)\n"
            "while data := stream.read(): stream.write(data)\n"
        )
        stream = listener.accept(20)
        sent = bytes(range(256)) * 8000

        def write():
            self.assertEqual(stream.write(sent, 20), len(sent))
            stream.shutdown_write()

        writer = threading.Thread(target=write)
        writer.start()
        got = bytearray()
        while data := stream.read(timeout=20):
            got += data
        writer.join()
        self.assertEqual(got, sent)
        self.assertEqual(ended(process), 0)
        with self.assertRaises(ginnel.Error):
            stream.write(b"x")
        process = other(
            f"stream = ginnel.Stream.connect(segment, {name!r}, 20)\n"
            "stream.write(b'last'); print('written', flush=True); time.sleep(60)\n"
        )
        stream = listener.accept(20)
        self.assertEqual(said(process), "written")
        killed(process)
        self.assertEqual(stream.read(timeout=20), b"last")
        with self.assertRaises(ginnel.Ended) as caught:
            stream.read(timeout=20)
        self.assertTrue(caught.exception.died)
        with self.assertRaises(ginnel.NotFound):
            ginnel.Stream.connect(segment, "nobody")

    def test_streams_in_an_event_loop(self):
        name = self.name()
        sent = b"0123456789" * 100000

        async def serve():
            with ginnel.Listener.open(segment, name) as listener:
                with await listener.accept_async(20) as stream:
                    writing = asyncio.create_task(stream.write_async(sent, 30))
                    got = bytearray()
                    while len(got) < len(sent):
                        got += await stream.read_async(timeout=20)
                    await writing
                    self.assertEqual(got, sent)

        # It tries until somebody listens.
        process = other(
            "while True:\n"
            f"    try: stream = ginnel.Stream.connect(segment, {name!r}, 20); break\n"
            "    except ginnel.NotFound: time.sleep(0.01)\n"
            "while data := stream.read(): stream.write(data)\n"
        )
        asyncio.run(serve())
        self.assertEqual(ended(process), 0)

    def test_a_copy_is_refused(self):
        mutex = ginnel.Mutex.open_or_create(segment, self.name())
        for one in [segment, mutex]:
            for way in [copy.copy, copy.deepcopy]:
                with self.assertRaisesRegex(TypeError, "open it once more"):
                    way(one)

    def test_numpy_works_on_memory(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy is not installed")
        memory = ginnel.Memory.create(segment, self.name(), 8 * 1000)
        mine = numpy.frombuffer(memory.in_place(), dtype=numpy.float64)
        mine[:] = numpy.arange(1000)
        process = other(
            "import numpy\n"
            f"memory = ginnel.Memory.open(segment, {self.name()!r})\n"
            "array = numpy.frombuffer(memory.in_place(), dtype=numpy.float64)\n"
            "array *= 2\n"
            "print(array.sum(), flush=True)\n"
        )
        self.assertEqual(float(said(process)), 999000.0)
        self.assertEqual(ended(process), 0)
        self.assertEqual(mine[999], 1998.0)
        with self.assertRaises(BufferError):
            memory.close()


class Threads(unittest.TestCase):
    """What one thread does while another is in a call with the same object."""

    def name(self):
        return self.id()[-60:]

    def in_a_thread(self, attempt):
        came = []

        def run():
            try:
                came.append(attempt())
            except BaseException as why:
                came.append(why)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread, came

    def test_closed_while_another_waits(self):
        ginnel.Queue().create(segment, self.name())
        listener = ginnel.Listener.open(segment, self.name() + "s")
        connected, came = self.in_a_thread(lambda: ginnel.Stream.connect(segment, self.name() + "s"))
        stream = listener.accept()
        connected.join()
        receiver = ginnel.Receiver.open(segment, self.name())
        event = ginnel.Event.create(segment, self.name() + "e")
        for one, wait in (
            (stream, stream.read),
            (listener, listener.accept),
            (receiver, receiver.recv),
            (event, event.wait),
        ):
            thread, error = self.in_a_thread(wait)
            time.sleep(0.02)
            one.close()
            thread.join(60)
            self.assertIsInstance(error[0], ginnel.Error)
            self.assertIn("closed", str(error[0]))
            one.close()
        came[0].close()

    def test_many_threads_of_one_receiver(self):
        ginnel.Queue(loans=8).create(segment, self.name())
        receiver = ginnel.Receiver.open(segment, self.name())
        sender = ginnel.Sender.open(segment, self.name())
        threads = [self.in_a_thread(lambda: [int(receiver.read(60)) for _ in range(20)]) for _ in range(3)]
        senders = [
            self.in_a_thread(lambda first=first: [sender.send(b"%d" % n, 60) for n in range(first, 60, 2)])
            for first in range(2)
        ]
        for thread, _ in threads + senders:
            thread.join(60)
        got = sorted(number for _, came in threads for number in came[0])
        self.assertEqual(got, list(range(60)))
        # One gives a message back while another waits for the next.
        sender.send(b"held")
        held = receiver.recv(60)
        thread, came = self.in_a_thread(lambda: receiver.read(60))
        time.sleep(0.02)
        held.drop()
        sender.send(b"next")
        thread.join(60)
        self.assertEqual(came, [b"next"])

    def test_names_and_numbers_that_cannot_be(self):
        """Each is refused, and none is taken for another that can be."""
        before = ginnel.Memory.create(segment, self.name(), 100)
        cut = self.name() + "\0x"
        for name in (cut, "\udcff", "", "x" * 97):
            for make in (
                lambda: ginnel.Memory.open_or_create(segment, name, 100),
                lambda: ginnel.Queue().create(segment, name),
                lambda: ginnel.Sender.open(segment, name),
                lambda: ginnel.Semaphore.create(segment, name, 0, 1),
                lambda: ginnel.Listener.open(segment, name),
                lambda: ginnel.Stream.connect(segment, name),
                lambda: segment.remove(name),
            ):
                with self.assertRaises(ginnel.Error) as refused:
                    make()
                if "\0" in name or name == "\udcff":
                    self.assertIn(repr(name), str(refused.exception))
        for name in ("a\0b", "\udcff", "", ".."):
            with self.assertRaises(ginnel.Error):
                ginnel.Segment.open(name)
        other = self.name() + "other"
        for number in (-1, 2**32, 2**64, 2**64 + 8, 2**70):
            for ask in (
                lambda: before.read(number, 1),
                lambda: before.read(0, number),
                lambda: before.write(number, b"x"),
                lambda: ginnel.Memory.create(segment, other, number),
                lambda: ginnel.Queue(capacity=number).create(segment, other),
                lambda: ginnel.Queue(message_size=number).create(segment, other),
                lambda: ginnel.Semaphore.create(segment, other, 0, number),
                lambda: ginnel.Barrier.create(segment, other, number),
                lambda: ginnel.Segment.open("another", size=number, existing=True),
            ):
                with self.assertRaises(ginnel.Error) as refused:
                    ask()
                self.assertNotIn(str(2**64 - 1), str(refused.exception))
        with self.assertRaises(ginnel.Error):
            ginnel.Queue(capacity=0)
        semaphore = ginnel.Semaphore.create(segment, other, 0, 3)
        with self.assertRaises(ginnel.Error):
            semaphore.add(2**32 + 1)
        self.assertEqual(semaphore.available, 0)

    def test_handlers_run_while_it_waits(self):
        class Rung(Exception):
            pass

        def ring(number, frame):
            raise Rung

        listener = ginnel.Listener.open(segment, self.name())
        event = ginnel.Event.create(segment, self.name() + "e")
        before = signal.signal(signal.SIGALRM, ring)
        try:
            for wait in (
                listener.accept,
                event.wait,
                lambda: event.wait(3600),
                lambda: ginnel.Stream.connect(segment, self.name()),
            ):
                signal.setitimer(signal.ITIMER_REAL, 0.02)
                with self.assertRaises(Rung):
                    wait()
            # It closes what its thread waits for.
            signal.signal(signal.SIGALRM, lambda number, frame: event.close())
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            with self.assertRaises(ginnel.Error):
                event.wait(60)
        finally:
            signal.signal(signal.SIGALRM, before)

    def test_forked_while_another_waits(self):
        ginnel.Queue().create(segment, self.name())
        receiver = ginnel.Receiver.open(segment, self.name())
        thread, came = self.in_a_thread(lambda: receiver.read(60))
        time.sleep(0.02)
        child = os.fork()
        if child == 0:
            # It is its parent's; and nobody of this process is in the call.
            receiver.__del__()
            os._exit(7)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)
        ginnel.Sender.open(segment, self.name()).send(b"on")
        thread.join(60)
        self.assertEqual(came, [b"on"])


if __name__ == "__main__":
    signal.alarm(300)
    unittest.main()
