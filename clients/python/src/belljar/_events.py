"""A stream of events: parses SSE, and resumes after a broken connection."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ._decode import decode
from ._errors import BelljarError, Unreachable
from ._models import ApprovalAsked, End, Event, Fault, File, Output, Result, StatusChange
from ._plan import Plan, nothing, segment

# The server sends a comment every 15 s if there is no event.
SILENCE_SECONDS = 60.0
# A restart of the server takes a few seconds.
BREAKS_MAX = 6
BREAK_SECONDS_MAX = 8.0

_EVENT_TYPES: dict[str, type[Any]] = {
    "status": StatusChange,
    "output": Output,
    "result": Result,
    "file": File,
    "approval": ApprovalAsked,
    "error": Fault,
    "end": End,
}


class Follow:
    """The position in the events of one execution, which survives a broken connection."""

    def __init__(self, execution_id: str) -> None:
        self.execution_id = execution_id
        self.finished = False
        self._last = 0
        self._breaks = 0
        self._rest = b""
        self._frame: dict[str, str] = {}

    def plan(self) -> Plan[None]:
        """The request for all events that were not received yet."""
        self._rest, self._frame = b"", {}
        return Plan(
            method="GET",
            path=f"/v1/executions/{segment(self.execution_id)}/events",
            read=nothing,
            headers={"Accept": "text/event-stream", "Last-Event-ID": str(self._last)},
            seconds=SILENCE_SECONDS,
        )

    def receive(self, piece: bytes) -> Iterator[Event]:
        """The events that are complete with this piece of the response."""
        # Only here: what Python and httpx call lines end at characters that an event may contain.
        *lines, self._rest = (self._rest + piece).split(b"\n")
        try:
            for line in lines:
                event = self._line(line.decode())
                if event is not None:
                    yield event
        except (TypeError, ValueError) as error:
            message = f"an event cannot be read: {error}"
            raise Unreachable("answer.unreadable", message) from error

    def _line(self, line: str) -> Event | None:
        if line:
            name, _, value = line.partition(":")
            self._frame[name] = value.removeprefix(" ")
            return None
        frame, self._frame = self._frame, {}
        return self._event(frame) if "data" in frame else None

    def _event(self, frame: dict[str, str]) -> Event | None:
        self._last = int(frame.get("id", self._last))
        self._breaks = 0
        event_type = _EVENT_TYPES.get(frame.get("event", ""))
        if event_type is None:
            return None
        event: Event = decode(event_type, json.loads(frame["data"]))
        self.finished = isinstance(event, End)
        return event

    def broken(self, error: BelljarError) -> float:
        """How long to wait before reconnecting; raises an error that forbids it."""
        self._breaks += 1
        passing = error.code == "server.unreachable" or error.status in (429, 503)
        if not passing or self._breaks > BREAKS_MAX:
            raise error
        return min(0.25 * self._breaks**2, BREAK_SECONDS_MAX)


def ended_early() -> Unreachable:
    return Unreachable("server.unreachable", "the events end before the execution does")
