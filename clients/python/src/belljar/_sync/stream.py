"""A run that is watched while it happens."""

from __future__ import annotations

from collections.abc import Iterator

from .._events import Follow
from .._models import Event, Execution
from .._plan import Plan
from .._requests import executions
from .transport import Transport


class Stream:
    """Events of a run, in order, whatever happens to the connection.

    Leaving the loop before the last event cancels the run.
    """

    def __init__(self, transport: Transport, run: Plan[Execution]) -> None:
        self._transport = transport
        self._follow = Follow(transport.send(run.later()).id)

    @property
    def execution_id(self) -> str:
        return self._follow.execution_id

    def __iter__(self) -> Iterator[Event]:
        try:
            yield from self._transport.follow(self._follow)
        except (GeneratorExit, KeyboardInterrupt):
            self._give_up()
            raise

    def _give_up(self) -> None:
        """Back when the run is over, so that its session is free again."""
        if not self._follow.finished:
            self.cancel()
        for _ in self._transport.follow(self._follow):
            pass

    def cancel(self) -> bool:
        """Tells whether there was something to stop."""
        return self._transport.send(executions.cancel(self.execution_id))

    def result(self) -> Execution:
        """The whole record, once the run is over."""
        for _ in self:
            pass
        return self._transport.send(executions.execution(self.execution_id))
