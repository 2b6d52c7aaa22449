"""How sessions and streams start: at once in the synchronous client, when first used in the other.

A constructor cannot be awaited, so the asynchronous classes send their first request later.
`generate_sync.py` replaces `AsyncX` with `X`, so each pair has one interface.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar

from ._events import Follow
from ._models import Execution, SessionInfo
from ._plan import Plan

if TYPE_CHECKING:
    from ._async.transport import AsyncTransport
    from ._sync.transport import Transport

S = TypeVar("S", bound="OpenSession")
A = TypeVar("A", bound="AsyncOpenSession")

# What ends a loop over the events of a run before the last event.
STOPPED = (GeneratorExit, KeyboardInterrupt)
ASYNC_STOPPED = (GeneratorExit, asyncio.CancelledError)


class OpenSession:
    """Opens the session when it is constructed."""

    def __init__(self, transport: Transport, opening: Plan[SessionInfo], *, keep: bool) -> None:
        self._transport = transport
        self._keep = keep
        self._info = transport.send(opening)

    @property
    def info(self) -> SessionInfo:
        """The session as it was when it was opened, reset or changed."""
        return self._info

    def _open(self: S) -> S:
        return self


class AsyncOpenSession:
    """Opens the session when it is awaited or entered."""

    def __init__(
        self, transport: AsyncTransport, opening: Plan[SessionInfo], *, keep: bool
    ) -> None:
        self._transport = transport
        self._opening = opening
        self._keep = keep
        self._info: SessionInfo | None = None

    @property
    def info(self) -> SessionInfo:
        """The session as it was when it was opened, reset or changed."""
        if self._info is None:
            raise RuntimeError("the session is not open: use it with `async with`, or await it")
        return self._info

    def __await__(self: A) -> Generator[Any, None, A]:
        return self._open().__await__()

    async def _open(self: A) -> A:
        if self._info is None:
            self._info = await self._transport.send(self._opening)
        return self


class StartedRun:
    """Starts the run when it is constructed."""

    def __init__(self, transport: Transport, run: Plan[Execution]) -> None:
        self._transport = transport
        self._follow = Follow(transport.send(run.later()).id)

    @property
    def execution_id(self) -> str:
        return self._follow.execution_id

    def _start(self) -> Follow:
        return self._follow


class AsyncStartedRun:
    """Starts the run with the first call that is awaited."""

    def __init__(self, transport: AsyncTransport, run: Plan[Execution]) -> None:
        self._transport = transport
        self._run = run.later()
        self._follow: Follow | None = None

    @property
    def execution_id(self) -> str | None:
        """`None` until the run has started."""
        return self._follow.execution_id if self._follow else None

    async def _start(self) -> Follow:
        if self._follow is None:
            self._follow = Follow((await self._transport.send(self._run)).id)
        return self._follow
