"""libginnel.so.0 by ctypes: its functions, and its errors as exceptions."""

from __future__ import annotations

import ctypes
import operator
import os
import weakref
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Optional, Union

Timeout = Optional[float]
Bytes = Union[bytes, bytearray, memoryview]


class Error(Exception):
    """Why a call failed. `code` is one of `enum ginnel_error` in ginnel.h."""

    code = 0

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class NotFound(Error):
    """No object of this name is in the segment."""


class Taken(Error):
    """An object of this name is in the segment already."""


class WouldBlock(Error, BlockingIOError):
    """There is nothing to be had at the moment; the descriptor tells when there is."""


class TimedOut(Error, TimeoutError):
    """The time that was given is over."""


class Ended(Error):
    """Everybody at the other end has left. `died`: the last of them died."""

    @property
    def died(self) -> bool:
        return self.code == 14


class Broken(Error):
    """One that takes part in the barrier died before it came."""


class Forked(Error):
    """The object is that of the process before fork: open it again in this one."""


#: GINNEL_EINVALID.
INVALID = 5

_KINDS = {
    1: NotFound,
    2: Taken,
    11: WouldBlock,
    12: TimedOut,
    13: Ended,
    14: Ended,
    16: Forked,
    23: Broken,
}


class Options(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("segment_size", c_uint64), ("existing", c_int)]


class QueueOptions(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("capacity", c_uint32),
        ("senders", c_uint32),
        ("message_size", c_uint64),
        ("loans", c_uint32),
    ]


class RawLoan(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("len", c_size_t), ("private", c_uint64 * 2)]


class RawMessage(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("len", c_size_t), ("private", c_uint64 * 3)]


_HANDLE = c_void_p
_OUT = POINTER(c_void_p)

# Name, what it gives, what it takes; an int that is -1 where it fails.
_FUNCTIONS: list[tuple[str, Any, list[Any]]] = [
    ("errcode", c_int, []),
    ("errmsg", c_char_p, []),
    ("version", c_char_p, []),
    ("open", c_int, [c_char_p, POINTER(Options), _OUT]),
    ("remove", c_int, [_HANDLE, c_char_p]),
    ("close", None, [_HANDLE]),
    ("memory_read", c_int, [_HANDLE, c_size_t, c_void_p, c_size_t]),
    ("memory_write", c_int, [_HANDLE, c_size_t, c_void_p, c_size_t]),
    ("memory_data", c_void_p, [_HANDLE]),
    ("memory_size", c_size_t, [_HANDLE]),
    ("queue_create", c_int, [_HANDLE, c_char_p, POINTER(QueueOptions)]),
    ("queue_open_or_create", c_int, [_HANDLE, c_char_p, POINTER(QueueOptions)]),
    ("sender_open", c_int, [_HANDLE, c_char_p, c_int, _OUT]),
    ("sender_send", c_int, [_HANDLE, c_void_p, c_size_t, c_int64]),
    ("sender_loan", c_int, [_HANDLE, c_size_t, c_int64, POINTER(RawLoan)]),
    ("loan_send", c_int, [POINTER(RawLoan), c_size_t]),
    ("loan_drop", c_int, [POINTER(RawLoan)]),
    ("sender_close", c_int, [_HANDLE]),
    ("receiver_open", c_int, [_HANDLE, c_char_p, _OUT]),
    ("receiver_take", c_int, [_HANDLE, c_int64, POINTER(RawMessage)]),
    ("message_drop", c_int, [POINTER(RawMessage)]),
    ("receiver_close", c_int, [_HANDLE]),
    ("listener_open", c_int, [_HANDLE, c_char_p, _OUT]),
    ("listener_accept", c_int, [_HANDLE, c_int64, _OUT]),
    ("listener_close", None, [_HANDLE]),
    ("stream_connect", c_int, [_HANDLE, c_char_p, c_int64, _OUT]),
    ("stream_read", c_int, [_HANDLE, c_void_p, c_size_t, POINTER(c_size_t), c_int64]),
    ("stream_write", c_int, [_HANDLE, c_void_p, c_size_t, POINTER(c_size_t), c_int64]),
    ("stream_shutdown", c_int, [_HANDLE]),
    ("stream_write_fd", c_int, [_HANDLE]),
    ("stream_close", None, [_HANDLE]),
    ("mutex_lock", c_int, [_HANDLE, c_int64]),
    ("rwlock_read", c_int, [_HANDLE, c_int64]),
    ("rwlock_write", c_int, [_HANDLE, c_int64]),
    ("semaphore_acquire", c_int, [_HANDLE, c_int64]),
    ("semaphore_release", c_int, [_HANDLE]),
    ("semaphore_use_up", c_int, [_HANDLE]),
    ("semaphore_add", c_int, [_HANDLE, c_uint32]),
    ("semaphore_available", c_uint32, [_HANDLE]),
    ("event_set", c_int, [_HANDLE]),
    ("event_reset", c_int, [_HANDLE]),
    ("event_wait", c_int, [_HANDLE, c_int64]),
    ("event_is_set", c_int, [_HANDLE]),
    ("barrier_wait", c_int, [_HANDLE, c_int64]),
]

MEASURES: dict[str, list[Any]] = {
    "memory": [c_uint64],
    "mutex": [],
    "rwlock": [],
    "semaphore": [c_uint32, c_uint32],
    "event": [c_int],
    "barrier": [c_uint32],
}
_POLLABLE = ("sender", "receiver", "semaphore", "event", "listener", "stream")
_FUNCTIONS += [("%s_unlock" % kind, c_int, [_HANDLE]) for kind in ("mutex", "rwlock")]
_FUNCTIONS += [("%s_mark_consistent" % kind, c_int, [_HANDLE]) for kind in ("mutex", "rwlock")]
_FUNCTIONS += [("%s_fd" % kind, c_int, [_HANDLE]) for kind in _POLLABLE]
for _kind, _measures in MEASURES.items():
    _FUNCTIONS += [
        (_kind + "_create", c_int, [_HANDLE, c_char_p, *_measures, _OUT]),
        (_kind + "_open", c_int, [_HANDLE, c_char_p, _OUT]),
        (_kind + "_open_or_create", c_int, [_HANDLE, c_char_p, *_measures, _OUT]),
        (_kind + "_close", None, [_HANDLE]),
    ]


def _file() -> str:
    """The library that is asked for; else the one that a wheel has brought; else the system's."""
    brought = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libginnel.so.0")
    found = brought if os.path.exists(brought) else "libginnel.so.0"
    return os.environ.get("GINNEL_LIBRARY", found)


def _load() -> Any:
    name = _file()
    try:
        library = ctypes.CDLL(name)
    except OSError as why:
        raise ImportError(
            f"{why}. Install the package libginnel0; or, in a clone of Ginnel, run "
            "scripts/build-capi.sh /opt/ginnel and have GINNEL_LIBRARY name "
            "/opt/ginnel/lib/libginnel.so.0",
            name=__package__,
        ) from None
    for name, result, arguments in _FUNCTIONS:
        function = getattr(library, "ginnel_" + name)
        function.restype, function.argtypes = result, arguments
    return library


library: Any = _load()


def failed() -> Error:
    """Why this thread's last call failed."""
    code = library.ginnel_errcode()
    message = library.ginnel_errmsg().decode(errors="replace")
    return _KINDS.get(code, Error)(message, code)


def text_of(name: str) -> bytes:
    """A name as the library takes it: it would take one with a 0 in it for what stands before."""
    try:
        text = name.encode()
    except UnicodeEncodeError:
        raise Error(f"a name is UTF-8, and {name!r} is not", INVALID) from None
    if b"\0" in text:
        raise Error(f"a name has no 0 in it, and {name!r} has one", INVALID)
    return text


def number_of(value: int, what: str, kind: Any) -> int:
    """A number that fits into its type, which would take another number for it elsewise."""
    most = min(2 ** (8 * ctypes.sizeof(kind)), 2**63) - 1
    if not 0 <= operator.index(value) <= most:
        raise Error(f"{what} is a number from 0 to {most}, not {value}", INVALID)
    return value


def call(name: str, *arguments: Any) -> int:
    """Calls a function that gives -1 where it fails. The interpreter's lock is free meanwhile."""
    result: int = getattr(library, "ginnel_" + name)(*arguments)
    if result == -1:
        raise failed()
    return result


def made(name: str, *arguments: Any) -> int:
    """The same for one that makes a handle, which is its last argument."""
    handle = c_void_p()
    call(name, *arguments, byref(handle))
    return handle.value or 0


def nanoseconds(timeout: Timeout) -> int:
    """As the library takes a time limit: None waits for as long as it takes."""
    if timeout is None:
        return -1
    return max(0, min(int(timeout * 1e9), 2**63 - 1))


def address_of(data: Bytes) -> tuple[Any, int, Any]:
    """Where bytes lie: the address, how many, and what is to be kept until they are used."""
    if isinstance(data, bytes):
        return ctypes.cast(c_char_p(data), c_void_p), len(data), data
    view = memoryview(data).cast("B")
    if view.readonly or not len(view):
        copy = bytes(view)
        return ctypes.cast(c_char_p(copy), c_void_p), len(copy), copy
    array = (ctypes.c_ubyte * len(view)).from_buffer(view)
    return ctypes.cast(array, c_void_p), len(view), array


class Views:
    """Views of memory that is somebody's for a while. Each keeps its owner alive; the owner cannot
    give the memory back while there are any."""

    def __init__(self) -> None:
        self._arrays: "list[weakref.ref[Any]]" = []

    def make(self, owner: object, address: int, length: int, writable: bool) -> memoryview:
        array = (ctypes.c_ubyte * length).from_address(address)
        array._owner = owner  # type: ignore[attr-defined]
        self._arrays = [known for known in self._arrays if known() is not None]
        self._arrays.append(weakref.ref(array))
        view = memoryview(array).cast("B")
        return view if writable else view.toreadonly()

    def check(self) -> None:
        """Raises BufferError while there are any."""
        if any(known() is not None for known in self._arrays):
            raise BufferError("there are views of it still; delete them, or use a copy")

