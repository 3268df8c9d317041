"""Named objects in memory that processes, containers and virtual machines of one host share.

    import ginnel
    segment = ginnel.Segment.own()
    memory = ginnel.Memory.open_or_create(segment, "state", 4096)
    memory.write(0, b"shared")

Over libginnel.so.0, by ctypes; docs/python.md explains it, with examples. Calls that wait let other
threads of the interpreter run. Times are seconds: None waits for as long as it takes, 0 not at all
(WouldBlock).
"""

from ._data import Loan, Memory, Message, Queue, Receiver, Sender, WhenFull
from ._handle import Segment
from ._library import Broken, Ended, Error, Forked, NotFound, Taken, TimedOut, WouldBlock, library
from ._locks import Barrier, Event, Guard, Mutex, Permit, Reset, RwLock, Semaphore
from ._streams import Listener, Stream

__version__: str = library.ginnel_version().decode()

__all__ = [
    "Barrier",
    "Broken",
    "Ended",
    "Error",
    "Event",
    "Forked",
    "Guard",
    "Listener",
    "Loan",
    "Memory",
    "Message",
    "Mutex",
    "NotFound",
    "Permit",
    "Queue",
    "Receiver",
    "Reset",
    "RwLock",
    "Segment",
    "Semaphore",
    "Sender",
    "Stream",
    "Taken",
    "TimedOut",
    "WhenFull",
    "WouldBlock",
]
