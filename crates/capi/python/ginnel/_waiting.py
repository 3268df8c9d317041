"""Waiting in an event loop, by an object's descriptor."""

from __future__ import annotations

import asyncio
from typing import Callable, Optional, TypeVar

from ._library import WouldBlock

T = TypeVar("T")


async def until(fileno: Callable[[], int], attempt: Callable[[], T], timeout: Optional[float] = None) -> T:
    """Tries again and again, whenever the descriptor says that it is worth it."""
    if timeout is not None:
        return await asyncio.wait_for(until(fileno, attempt), timeout)
    while True:
        try:
            return attempt()
        except WouldBlock:
            await _readable(fileno())


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready: "asyncio.Future[None]" = loop.create_future()

    def tell() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(fd, tell)
    try:
        await ready
    finally:
        loop.remove_reader(fd)
