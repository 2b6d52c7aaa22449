"""A run whose events are read while it happens."""

from __future__ import annotations

from collections.abc import AsyncIterator

from .._events import Follow
from .._models import Event, Execution
from .._opening import ASYNC_STOPPED, AsyncStartedRun
from .._requests import executions


class AsyncStream(AsyncStartedRun):
    """Events of a run, in order, whatever happens to the connection.

    Leaving the loop before the last event cancels the run.
    """

    async def __aiter__(self) -> AsyncIterator[Event]:
        follow = await self._start()
        try:
            async for event in self._transport.follow(follow):
                yield event
        except ASYNC_STOPPED:
            await self._stop(follow)
            raise

    async def _stop(self, follow: Follow) -> None:
        """Cancel the run and return when it has ended, so that its session is free again."""
        if not follow.finished:
            await self.cancel()
        async for _ in self._transport.follow(follow):
            pass

    async def cancel(self) -> bool:
        """Cancel the run. Returns whether it was still running."""
        follow = await self._start()
        return await self._transport.send(executions.cancel(follow.execution_id))

    async def result(self) -> Execution:
        """The complete record, when the run has ended."""
        async for _ in self:
            pass
        follow = await self._start()
        return await self._transport.send(executions.execution(follow.execution_id))
