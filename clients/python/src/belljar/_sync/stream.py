# Generated from ../_async/stream.py by generate_sync.py. Do not edit.
"""A run whose events are read while it happens."""

from __future__ import annotations

from collections.abc import Iterator

from .._events import Follow
from .._models import Event, Execution
from .._opening import STOPPED, StartedRun
from .._requests import executions


class Stream(StartedRun):
    """Events of a run, in order, whatever happens to the connection.

    Leaving the loop before the last event cancels the run.
    """

    def __iter__(self) -> Iterator[Event]:
        follow = self._start()
        try:
            for event in self._transport.follow(follow):
                yield event
        except STOPPED:
            self._stop(follow)
            raise

    def _stop(self, follow: Follow) -> None:
        """Cancel the run and return when it has ended, so that its session is free again."""
        if not follow.finished:
            self.cancel()
        for _ in self._transport.follow(follow):
            pass

    def cancel(self) -> bool:
        """Cancel the run. Returns whether it was still running."""
        follow = self._start()
        return self._transport.send(executions.cancel(follow.execution_id))

    def result(self) -> Execution:
        """The complete record, when the run has ended."""
        for _ in self:
            pass
        follow = self._start()
        return self._transport.send(executions.execution(follow.execution_id))
