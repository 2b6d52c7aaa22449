"""Code that runs, in a sandbox of its own or in a session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from .._models import Execution, Limits, LimitsRequest, Page, Status
from .._plan import (
    PREPARATION_SECONDS,
    Plan,
    body,
    get,
    json_of,
    listed,
    one,
    post,
    post_run,
    segment,
)
from . import files as brought

Entry = Literal["cell", "script"]

# What a server gives to code that asks for no other time.
USUAL_WALL_MS = 30_000
# The most that a server gives unless its operator allows more; a tool has a time of its own.
LONGEST_WALL_MS = 3_600_000


def run_seconds(limits: LimitsRequest | None, otherwise_ms: int) -> float:
    """How long the answer to a run can take."""
    wall_ms = (limits or {}).get("wall_ms", otherwise_ms)
    return wall_ms / 1000 + PREPARATION_SECONDS


def execute(
    code: str,
    *,
    environment: str | None = None,
    entry: Entry | None = None,
    argv: Sequence[str] | None = None,
    files: Iterable[brought.Input] | None = None,
    limits: LimitsRequest | None = None,
    integrations: Sequence[str] | None = None,
) -> Plan[Execution]:
    asked = body(
        code=code,
        environment=environment,
        integrations=integrations,
        entry=entry,
        argv=argv,
        files=brought.inputs(files),
        limits=limits,
    )
    seconds = run_seconds(limits, USUAL_WALL_MS)
    return post_run("/v1/execute", one(Execution), asked, seconds=seconds)


def execute_in_session(
    sandbox_id: str,
    usual: Limits,
    code: str,
    *,
    entry: Entry | None = None,
    argv: Sequence[str] | None = None,
    files: Iterable[brought.Input] | None = None,
    limits: LimitsRequest | None = None,
) -> Plan[Execution]:
    asked = body(code=code, entry=entry, argv=argv, files=brought.inputs(files), limits=limits)
    seconds = run_seconds(limits, usual.wall_ms)
    path = f"/v1/sessions/{segment(sandbox_id)}/execute"
    return post_run(path, one(Execution), asked, seconds=seconds)


def executions(
    *, sandbox_id: str | None = None, status: Status | None = None, tool: str | None = None
) -> Plan[Page[Execution]]:
    filters = {"sandbox_id": sandbox_id, "status": status, "tool": tool}
    return listed("/v1/executions", Execution, **filters)


def execution(execution_id: str) -> Plan[Execution]:
    return get(f"/v1/executions/{segment(execution_id)}", one(Execution))


def cancel(execution_id: str) -> Plan[bool]:
    path = f"/v1/executions/{segment(execution_id)}/cancel"
    return post(path, lambda response: bool(json_of(response)["cancelled"]))
