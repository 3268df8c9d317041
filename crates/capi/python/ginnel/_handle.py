"""What every object has in common: a segment, a name, a handle that is closed."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from ctypes import byref, c_uint64, c_void_p, sizeof
from types import TracebackType
from typing import Any, Callable, Iterator, List, Optional, Type, TypeVar, Union

from ._library import (
    MEASURES,
    Error,
    Options,
    TimedOut,
    Timeout,
    call,
    library,
    made,
    nanoseconds,
    number_of,
    text_of,
)

Self = TypeVar("Self", bound="Handle")
T = TypeVar("T")

#: Where a call's time limit stands among its arguments.
TIME: Any = object()
#: A call that waits does so in pieces of so many seconds. Between two of them handlers of signals
#: run, and it sees that another thread has closed the object.
PIECE = 0.1


# Another object in a child of fork.
_process: List[object] = [object()]
os.register_at_fork(after_in_child=lambda: _process.__setitem__(0, object()))


def in_pieces(attempt: Callable[[Timeout], T], timeout: Timeout) -> T:
    """Tries, for a piece of the time at once, until the time is over."""
    if timeout is not None and timeout <= 0:
        return attempt(0)
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        left = PIECE if end is None else min(PIECE, max(end - time.monotonic(), 1e-9))
        try:
            return attempt(left)
        except TimedOut:
            if end is not None and time.monotonic() >= end:
                raise


class Single:
    """What stands for something in the library. Two of it would close that twice."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled: open it once more")


class Segment(Single):
    """A segment that this process has joined. It stays in it for as long as it lives."""

    def __init__(self, handle: int) -> None:
        self._handle = c_void_p(handle)

    @classmethod
    def open(
        cls,
        name: "Union[str, os.PathLike[str]]",
        *,
        size: int = 0,
        existing: bool = False,
    ) -> "Segment":
        """Opens a segment by its name or path. `size`: bytes of one that is made now."""
        return cls._open(text_of(os.fspath(name)), size, existing)

    @classmethod
    def own(cls, *, size: int = 0, existing: bool = False) -> "Segment":
        """Opens what GINNEL_SEGMENT names; else what the host shares with this machine; else the
        user's own."""
        return cls._open(None, size, existing)

    @classmethod
    def _open(cls, name: Optional[bytes], size: int, existing: bool) -> "Segment":
        size = number_of(size, "a segment's size", c_uint64)
        options = Options(sizeof(Options), size, existing)
        return cls(made("open", name, byref(options)))

    def remove(self, name: str) -> None:
        """Takes the name from an object: it is freed when nobody uses it any more."""
        call("remove", self._handle, text_of(name))

    def __del__(self) -> None:
        library.ginnel_close(self._handle)


class Handle(Single):
    """An object that is closed by `close()`, at the end of `with`, or when nobody has it."""

    _kind = ""
    #: One thread at a time is in a call with it; others wait for their turn.
    _single = False

    def __init__(self, handle: int, name: str) -> None:
        self._handle: Optional[c_void_p] = c_void_p(handle)
        self._closing = self._closed_within = False
        self._begin()
        self.name = name

    def _begin(self) -> None:
        self._process = _process[0]
        #: The threads that are in a call with it.
        self._users: List[int] = []
        # One thread may take them again: a handler of a signal runs in the midst of anything.
        self._state = threading.Condition(threading.RLock())
        self._turn = threading.RLock()
        #: The threads that wait for their turn.
        self._waiting: List[int] = []

    def _here(self) -> None:
        # In a child of fork other threads are not there that were in a call, or had a lock.
        if self._process is not _process[0]:
            self._begin()

    @classmethod
    def _make(cls: Type[Self], how: str, segment: Segment, name: str, *measures: Any) -> Self:
        text = text_of(name)
        for value, kind in zip(measures, MEASURES.get(cls._kind, [])):
            number_of(value, f"a measure of {name!r}", kind)
        return cls(made(f"{cls._kind}_{how}", segment._handle, text, *measures), name)

    @classmethod
    def open(cls: Type[Self], segment: Segment, name: str) -> Self:
        """Opens one that is there."""
        return cls._make("open", segment, name)

    def _use(self, what: Callable[[c_void_p], T]) -> T:
        """Does something with the handle, which is not closed meanwhile."""
        self._here()
        me = threading.get_ident()
        with self._state:
            self._users.append(me)
        try:
            if self._closing or self._handle is None:
                raise Error(f"{self.name!r} is closed")
            return what(self._handle)
        finally:
            with self._state:
                self._users.remove(me)
                if not self._users:
                    if self._closing and self._handle is not None and self._closed_within:
                        self._try_to_end()
                    self._state.notify_all()

    def _call(self, what: str, *arguments: Any) -> int:
        def in_turn(handle: c_void_p) -> int:
            if not self._single:
                return call(f"{self._kind}_{what}", handle, *arguments)
            with self._in_turn():
                if self._closing:
                    raise Error(f"{self.name!r} is closed")
                return call(f"{self._kind}_{what}", handle, *arguments)

        return self._use(in_turn)

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        me = threading.get_ident()
        self._waiting.append(me)
        try:
            self._turn.acquire()
        finally:
            self._waiting.remove(me)
        try:
            yield
        finally:
            self._turn.release()

    def _wait(self, what: str, timeout: Timeout, *arguments: Any) -> int:
        """A call that may wait; TIME stands where its limit is to be."""

        def attempt(left: Timeout) -> int:
            limit = max(nanoseconds(left), 1) if left else 0
            try:
                return self._call(what, *(limit if it is TIME else it for it in arguments))
            except TimedOut:
                if self._waiting:
                    # A lock is nobody's in turn: who asks at once has it again.
                    time.sleep(0.001)
                raise

        return in_pieces(attempt, timeout)

    def _free(self, handle: c_void_p) -> None:
        getattr(library, f"ginnel_{self._kind}_close")(handle)

    def _end(self) -> None:
        """Frees the handle, which nobody uses."""
        handle, self._handle = self._handle, None
        if handle is not None:
            try:
                self._free(handle)
            except Error:
                # It is as it was: something of it is out.
                self._handle, self._closing, self._closed_within = handle, False, False
                raise

    def _try_to_end(self) -> None:
        try:
            self._end()
        except Error:
            pass

    def close(self) -> None:
        """Closes the handle, which is of no use then. A call of another thread with it ends within a
        moment, with Error."""
        self._here()
        with self._state:
            if self._handle is None:
                return
            self._closing = True
            # In a handler of a signal the thread may be in the midst of a call itself, which then
            # closes it at its end.
            if threading.get_ident() in self._users:
                self._closed_within = True
                return
            while self._users:
                self._state.wait()
            self._end()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            try:
                self.close()
            except (Error, BufferError):
                pass


class Pollable(Handle):
    """One that has a descriptor: readable when a call that raised WouldBlock is worth another try,
    and now and then without. It is not to be read or closed."""

    def fileno(self) -> int:
        """The descriptor, for select, poll, epoll and event loops."""
        return self._call("fd")
