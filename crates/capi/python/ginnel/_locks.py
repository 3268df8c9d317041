"""Mutex, reader-writer lock, semaphore, event, barrier."""

from __future__ import annotations

import enum
from ctypes import c_uint32
from types import TracebackType
from typing import Optional, Type

from ._handle import TIME, Handle, Pollable, Segment, Self
from ._library import Timeout, number_of
from ._waiting import until


class Guard:
    """A lock that this thread holds until `unlock()`, or the end of `with`."""

    def __init__(self, lock: "_Lock", holder_died: bool) -> None:
        self._lock: "Optional[_Lock]" = lock
        #: One that could change what the lock protects died with it: put that in order.
        self.holder_died = holder_died

    def mark_consistent(self) -> None:
        """What the lock protects is in order again: the next holder is not told."""
        if self._lock is not None:
            self._lock._call("mark_consistent")

    def unlock(self) -> None:
        """Gives the lock back. By the thread that holds it."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock._call("unlock")

    def __enter__(self) -> "Guard":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.unlock()


class _Lock(Handle):
    @classmethod
    def create(cls: Type[Self], segment: Segment, name: str) -> Self:
        """Makes one that keeps its name until it is removed."""
        return cls._make("create", segment, name)

    @classmethod
    def open_or_create(cls: Type[Self], segment: Segment, name: str) -> Self:
        """Opens it, or makes it where it is not there."""
        return cls._make("open_or_create", segment, name)

    def _hold(self, how: str, timeout: Timeout) -> Guard:
        return Guard(self, self._wait(how, timeout, TIME) == 1)


class Mutex(_Lock):
    """One at a time; the next holder is told where the last one died."""

    _kind = "mutex"

    def lock(self, timeout: Timeout = None) -> Guard:
        """Takes the lock."""
        return self._hold("lock", timeout)


class RwLock(_Lock):
    """Many read, or one writes; all are told where one that wrote died."""

    _kind = "rwlock"

    def read(self, timeout: Timeout = None) -> Guard:
        """Takes it beside others that read."""
        return self._hold("read", timeout)

    def write(self, timeout: Timeout = None) -> Guard:
        """Takes it alone."""
        return self._hold("write", timeout)


class Permit:
    """A permit of a semaphore's, which this process has until it gives it back or dies."""

    def __init__(self, semaphore: "Semaphore") -> None:
        self._semaphore: "Optional[Semaphore]" = semaphore

    def _end(self, how: str) -> None:
        semaphore, self._semaphore = self._semaphore, None
        if semaphore is not None:
            semaphore._call(how)

    def release(self) -> None:
        """Gives it back."""
        self._end("release")

    def use_up(self) -> None:
        """It is gone: not given back."""
        self._end("use_up")

    def __enter__(self) -> "Permit":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.release()


class Semaphore(Pollable):
    """So many at a time, or as many as there are; permits of the dead come back."""

    _kind = "semaphore"

    @classmethod
    def create(cls, segment: Segment, name: str, permits: int, most: int) -> "Semaphore":
        """Makes one with `permits` free ones; there can be `most` at any time."""
        return cls._make("create", segment, name, permits, most)

    @classmethod
    def open_or_create(cls, segment: Segment, name: str, permits: int, most: int) -> "Semaphore":
        """Opens it, or makes it where it is not there."""
        return cls._make("open_or_create", segment, name, permits, most)

    def acquire(self, timeout: Timeout = None) -> Permit:
        """Acquires a permit."""
        self._wait("acquire", timeout, TIME)
        return Permit(self)

    async def acquire_async(self, timeout: Timeout = None) -> Permit:
        """The same in an event loop."""
        return await until(self.fileno, lambda: self.acquire(0), timeout)

    def add(self, count: int) -> None:
        """So many more free permits: all, or none and Error."""
        self._call("add", number_of(count, "a number of permits", c_uint32))

    @property
    def available(self) -> int:
        """How many are free at the moment."""
        return self._call("available")


class Reset(enum.IntEnum):
    """What becomes of an event that is set."""

    MANUAL = 0
    AUTO = 1


class Event(Pollable):
    """Something has happened, for all who wait or for one."""

    _kind = "event"

    @classmethod
    def create(cls, segment: Segment, name: str, reset: Reset = Reset.MANUAL) -> "Event":
        """Makes one that keeps its name until it is removed."""
        return cls._make("create", segment, name, int(reset))

    @classmethod
    def open_or_create(cls, segment: Segment, name: str, reset: Reset = Reset.MANUAL) -> "Event":
        """Opens it, or makes it where it is not there."""
        return cls._make("open_or_create", segment, name, int(reset))

    def set(self) -> None:
        """It has happened."""
        self._call("set")

    def reset(self) -> bool:
        """It has not. Returns whether it was set."""
        return self._call("reset") == 1

    def wait(self, timeout: Timeout = None) -> None:
        """Waits until it is set."""
        self._wait("wait", timeout, TIME)

    async def wait_async(self, timeout: Timeout = None) -> None:
        """The same in an event loop."""
        await until(self.fileno, lambda: self.wait(0), timeout)

    def is_set(self) -> bool:
        """Is it set at the moment?"""
        return self._call("is_set") != 0


class Barrier(Handle):
    """All go on when all have come. Each object is one of those that take part, until it is
    closed. For one thread at a time: two of them are two objects."""

    _kind = "barrier"
    _single = True

    @classmethod
    def create(cls, segment: Segment, name: str, parties: int) -> "Barrier":
        """Makes one for so many, of which this is one."""
        return cls._make("create", segment, name, parties)

    @classmethod
    def open_or_create(cls, segment: Segment, name: str, parties: int) -> "Barrier":
        """Opens it, or makes it where it is not there."""
        return cls._make("open_or_create", segment, name, parties)

    def wait(self, timeout: Timeout = None) -> bool:
        """Waits until all have come. True for the last."""
        return self._wait("wait", timeout, TIME) == 1
