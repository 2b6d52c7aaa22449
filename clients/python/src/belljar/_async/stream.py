"""A run that is watched while it happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from .._events import Follow
from .._models import Event, Execution
from .._plan import Plan
from .._requests import executions
from .transport import AsyncTransport


class AsyncStream:
    """Events of a run, in order, whatever happens to the connection.

    It begins with the first event that is asked for. Leaving the loop before the last one cancels
    the run.
    """

    def __init__(self, transport: AsyncTransport, run: Plan[Execution]) -> None:
        self._transport = transport
        self._run = run.later()
        self._follow: Follow | None = None

    @property
    def execution_id(self) -> str | None:
        return self._follow.execution_id if self._follow else None

    async def __aiter__(self) -> AsyncIterator[Event]:
        follow = await self._begin()
        try:
            async for event in self._transport.follow(follow):
                yield event
        except (GeneratorExit, asyncio.CancelledError):
            await self._give_up(follow)
            raise

    async def _give_up(self, follow: Follow) -> None:
        """Back when the run is over, so that its session is free again."""
        if not follow.finished:
            await self.cancel()
        async for _ in self._transport.follow(follow):
            pass

    async def _begin(self) -> Follow:
        if self._follow is None:
            self._follow = Follow((await self._transport.send(self._run)).id)
        return self._follow

    async def cancel(self) -> bool:
        """Tells whether there was something to stop."""
        follow = await self._begin()
        return await self._transport.send(executions.cancel(follow.execution_id))

    async def result(self) -> Execution:
        """The whole record, once the run is over."""
        async for _ in self:
            pass
        follow = await self._begin()
        return await self._transport.send(executions.execution(follow.execution_id))
