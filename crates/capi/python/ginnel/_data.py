"""Memory and queues."""

from __future__ import annotations

import enum
from ctypes import byref, c_size_t, c_uint32, c_uint64, c_void_p, create_string_buffer, sizeof
from types import TracebackType
from typing import Any, Optional, Type

from ._handle import TIME, Handle, Pollable, Segment, Single
from ._library import (
    INVALID,
    Bytes,
    Error,
    QueueOptions,
    RawLoan,
    RawMessage,
    Timeout,
    Views,
    address_of,
    call,
    failed,
    library,
    number_of,
    text_of,
)
from ._waiting import until


class Memory(Handle):
    """Bytes by name, zeroed when they are made, that keep their name until it is removed."""

    _kind = "memory"

    def __init__(self, handle: int, name: str) -> None:
        super().__init__(handle, name)
        self._views = Views()

    @classmethod
    def create(cls, segment: Segment, name: str, size: int) -> "Memory":
        """Makes memory of so many bytes."""
        return cls._make("create", segment, name, size)

    @classmethod
    def open_or_create(cls, segment: Segment, name: str, size: int) -> "Memory":
        """Opens it, or makes it where it is not there."""
        return cls._make("open_or_create", segment, name, size)

    def __len__(self) -> int:
        return self._use(lambda handle: int(library.ginnel_memory_size(handle)))

    def read(self, at: int, length: int) -> bytes:
        """Copies bytes out."""
        at = number_of(at, "a place in memory", c_size_t)
        if number_of(length, "a length", c_size_t) > len(self):
            raise Error(f"{length} bytes do not lie in {self.name!r}, which has {len(self)}", INVALID)
        buffer = create_string_buffer(length)
        self._call("read", at, buffer, length)
        return buffer.raw

    def write(self, at: int, data: Bytes) -> None:
        """Copies bytes in."""
        address, length, _kept = address_of(data)
        at = number_of(at, "a place in memory", c_size_t)
        self._call("write", at, address, length)

    def in_place(self) -> memoryview:
        """The bytes themselves, which any process of the segment may change at any time: for those
        that trust each other. numpy.frombuffer takes it."""
        def view(handle: c_void_p) -> memoryview:
            address = library.ginnel_memory_data(handle)
            return self._views.make(self, address, len(self), True)

        return self._use(view)

    def close(self) -> None:
        """Closes it. BufferError while there are views of it."""
        self._views.check()
        super().close()


class WhenFull(enum.IntEnum):
    """What a sender does where it has no room."""

    WAIT = 0
    REFUSE = 1
    DROP_OLDEST = 2


class Queue:
    """With which measures a queue is made: from one or many to one."""

    def __init__(
        self,
        *,
        capacity: Optional[int] = None,
        message_size: Optional[int] = None,
        senders: Optional[int] = None,
        loans: Optional[int] = None,
    ) -> None:
        def measure(what: str, value: Optional[int], kind: Any) -> int:
            # The library takes 0 for what is not said.
            if value == 0:
                raise Error(f"a queue's {what} is at least 1, not 0", INVALID)
            return 0 if value is None else number_of(value, f"a queue's {what}", kind)

        self._options = QueueOptions(
            sizeof(QueueOptions),
            measure("capacity", capacity, c_uint32),
            measure("number of senders", senders, c_uint32),
            measure("message size", message_size, c_uint64),
            measure("number of loans", loans, c_uint32),
        )

    def create(self, segment: Segment, name: str) -> None:
        """Makes a queue that keeps its name until it is removed."""
        call("queue_create", segment._handle, text_of(name), byref(self._options))

    def open_or_create(self, segment: Segment, name: str) -> None:
        """Makes it, where it is not there."""
        call("queue_open_or_create", segment._handle, text_of(name), byref(self._options))


class _Held(Single):
    """A buffer of a queue's, for a while."""

    def __init__(self, raw: Any, end: Any) -> None:
        # What it is borrowed from stays for as long as this.
        self._raw, self._end, self._views = raw, end, Views()
        self._done = False

    def __len__(self) -> int:
        return int(self._raw.len)

    def _alive(self) -> None:
        if self._done:
            raise Error("it was given back")

    def _over(self) -> None:
        self._alive()
        self._views.check()

    def drop(self) -> None:
        """Gives it back. BufferError while there are views of it."""
        if not self._done:
            self._over()
            self._done = True
            self._end(self)

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.drop()

    def __del__(self) -> None:
        if not getattr(self, "_done", True):
            try:
                self.drop()
            except (Error, BufferError):
                pass


class Loan(_Held):
    """A buffer to be written where it is read, then sent."""

    def __init__(self, raw: RawLoan, sender: "Sender") -> None:
        self._sender = sender
        super().__init__(raw, lambda held: sender._borrowed("loan_drop", held._raw))

    def __enter__(self) -> "Loan":
        return self

    @property
    def view(self) -> memoryview:
        """Its bytes."""
        self._alive()
        return self._views.make(self, self._raw.data, len(self), True)

    def send(self, length: Optional[int] = None) -> None:
        """Sends it, or so many of its bytes. BufferError while there are views of it."""
        self._over()
        self._sender._borrowed("loan_send", self._raw, len(self) if length is None else number_of(length, "a length", c_size_t))
        self._done = True


class Message(_Held):
    """A message to be read where it was written, then given back. `bytes(message)` is a copy."""

    def __init__(self, raw: RawMessage, receiver: "Receiver") -> None:
        self._receiver = receiver
        super().__init__(raw, lambda held: receiver._borrowed("message_drop", held._raw))

    def __enter__(self) -> "Message":
        return self

    @property
    def view(self) -> memoryview:
        """Its bytes, which its sender could change."""
        self._alive()
        return self._views.make(self, self._raw.data, len(self), False)

    def __bytes__(self) -> bytes:
        return bytes(self.view)


class _End(Pollable):
    """An end of a queue. One thread at a time is in a call with it; another waits for its turn."""

    _single = True

    def _borrowed(self, what: str, raw: Any, *arguments: Any) -> None:
        """Ends a loan or a message of this one, also where it was asked to close meanwhile."""
        self._here()
        with self._in_turn():
            call(what, byref(raw), *arguments)


class Sender(_End):
    """One that sends into a queue. One thread at a time is in a call with it; another waits for its
    turn, a tenth of a second at most where that one waits for room."""

    _kind = "sender"

    @classmethod
    def open(cls, segment: Segment, name: str, when_full: WhenFull = WhenFull.WAIT) -> "Sender":  # type: ignore[override]
        """Takes a place among the senders."""
        return cls._make("open", segment, name, int(when_full))

    def send(self, data: Bytes, timeout: Timeout = None) -> None:
        """Sends a copy."""
        address, length, _kept = address_of(data)
        self._wait("send", timeout, address, length, TIME)

    def loan(self, length: int, timeout: Timeout = None) -> Loan:
        """Borrows a buffer of so many bytes."""
        raw = RawLoan()
        length = number_of(length, "a length", c_size_t)
        self._wait("loan", timeout, length, TIME, byref(raw))
        return Loan(raw, self)

    async def send_async(self, data: Bytes, timeout: Timeout = None) -> None:
        """`send`, in an event loop."""
        await until(self.fileno, lambda: self.send(data, 0), timeout)

    async def loan_async(self, length: int, timeout: Timeout = None) -> Loan:
        """`loan`, in an event loop."""
        return await until(self.fileno, lambda: self.loan(length, 0), timeout)

    def _free(self, handle: c_void_p) -> None:
        if library.ginnel_sender_close(handle) == -1:
            raise failed()


class Receiver(_End):
    """The one that receives from a queue. One thread at a time is in a call with it; another waits
    for its turn, a tenth of a second at most where that one waits for a message."""

    _kind = "receiver"

    def recv(self, timeout: Timeout = None) -> Message:
        """Takes the next message, to be read in place."""
        raw = RawMessage()
        self._wait("take", timeout, TIME, byref(raw))
        return Message(raw, self)

    def read(self, timeout: Timeout = None) -> bytes:
        """A copy of the next message, which is given back at once."""
        with self.recv(timeout) as message:
            return bytes(message)

    async def recv_async(self, timeout: Timeout = None) -> Message:
        """`recv`, in an event loop."""
        return await until(self.fileno, lambda: self.recv(0), timeout)

    async def read_async(self, timeout: Timeout = None) -> bytes:
        """`read`, in an event loop."""
        return await until(self.fileno, lambda: self.read(0), timeout)

    def _free(self, handle: c_void_p) -> None:
        if library.ginnel_receiver_close(handle) == -1:
            raise failed()
