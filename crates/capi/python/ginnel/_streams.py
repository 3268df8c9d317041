"""Streams: bytes both ways between two, as over a socket."""

from __future__ import annotations

import asyncio
import threading
from ctypes import byref, c_size_t, c_void_p, create_string_buffer
from typing import Callable

from ._handle import PIECE, TIME, Pollable, Segment, in_pieces
from ._library import (
    Bytes,
    Error,
    TimedOut,
    Timeout,
    address_of,
    library,
    made,
    nanoseconds,
    number_of,
    text_of,
)
from ._waiting import until


def _elsewhere(make: Callable[[], int]) -> int:
    """Makes a stream's handle in a thread of its own, so that handlers of signals run meanwhile. One
    that is made after that has come to nothing is closed again."""
    handles: "list[int]" = []
    errors: "list[BaseException]" = []
    lock, left = threading.Lock(), threading.Event()

    def end() -> None:
        while handles:
            library.ginnel_stream_close(c_void_p(handles.pop()))

    def run() -> None:
        try:
            handle = make()
        except BaseException as why:
            errors.append(why)
            return
        with lock:
            handles.append(handle)
            if left.is_set():
                end()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(PIECE)
    except BaseException:
        left.set()
        with lock:
            end()
        raise
    if errors:
        raise errors[0]
    return handles[0]


class Stream(Pollable):
    """One end of a stream. One thread may read and one may write at the same time. Closing it ends
    both ways."""

    _kind = "stream"

    @classmethod
    def connect(cls, segment: Segment, name: str, timeout: Timeout = None) -> "Stream":
        """Connects to who listens under this name, and waits until it has accepted."""
        return cls(_elsewhere(lambda: made("stream_connect", segment._handle, text_of(name), nanoseconds(timeout))), name)

    def read(self, room: int = 65536, timeout: Timeout = None) -> bytes:
        """Reads what there is, at least a byte; b"" where nothing more comes."""
        room = number_of(room, "room for bytes", c_size_t)
        buffer, length = create_string_buffer(room), c_size_t()
        self._wait("read", timeout, buffer, room, byref(length), TIME)
        return buffer.raw[: length.value]

    def write(self, data: Bytes, timeout: Timeout = None) -> int:
        """Writes all of it, or as much as goes in that time. Returns how much."""
        address, length, _kept = address_of(data)
        done, written = 0, c_size_t()

        def more(left: Timeout) -> int:
            nonlocal done
            at = c_void_p((address.value or 0) + done) if length else address
            limit = max(nanoseconds(left), 1) if left else 0
            self._call("write", at, length - done, byref(written), limit)
            done += written.value
            if done < length and left:
                raise TimedOut("not all was written in that time", 12)
            return done

        try:
            return in_pieces(more, timeout)
        except Error:
            # Why nothing more went is what the next call says.
            if done:
                return done
            raise

    def shutdown_write(self) -> None:
        """Tells the other end that nothing more comes. Reading goes on."""
        self._call("shutdown")

    def write_fileno(self) -> int:
        """The descriptor that becomes readable when a write that raised WouldBlock is worth another
        try. `fileno()` is that for reading."""
        return self._call("write_fd")

    async def read_async(self, room: int = 65536, timeout: Timeout = None) -> bytes:
        """`read`, in an event loop."""
        return await until(self.fileno, lambda: self.read(room, 0), timeout)

    async def write_async(self, data: Bytes, timeout: Timeout = None) -> None:
        """Writes all of it, in an event loop."""

        async def all_of_it() -> None:
            rest = memoryview(data).cast("B")
            while len(rest):
                done = await until(self.write_fileno, lambda: self.write(rest, 0))
                rest = rest[done:]

        # No limit where `timeout` is None.
        await asyncio.wait_for(all_of_it(), timeout)


class Listener(Pollable):
    """Where streams of a name come in. The name goes with this process, and with the object."""

    _kind = "listener"

    def accept(self, timeout: Timeout = None) -> Stream:
        """Takes the next stream."""
        out = c_void_p()
        self._wait("accept", timeout, TIME, byref(out))
        return Stream(out.value or 0, self.name)

    async def accept_async(self, timeout: Timeout = None) -> Stream:
        """The same in an event loop."""
        return await until(self.fileno, lambda: self.accept(0), timeout)
