"""Executions, in a fresh sandbox or in a session."""

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
from . import files as file_inputs

Entry = Literal["cell", "script"]

# The default time limit of a server.
DEFAULT_WALL_MS = 30_000
# The cap of a server unless its operator sets another; a tool has its own time limit.
MAX_WALL_MS = 3_600_000


def run_seconds(limits: LimitsRequest | None, otherwise_ms: int) -> float:
    """How long the response to a run can take."""
    wall_ms = (limits or {}).get("wall_ms", otherwise_ms)
    return wall_ms / 1000 + PREPARATION_SECONDS


def execute(
    code: str,
    *,
    environment: str | None = None,
    entry: Entry | None = None,
    argv: Sequence[str] | None = None,
    files: Iterable[file_inputs.Input] | None = None,
    limits: LimitsRequest | None = None,
    integrations: Sequence[str] | None = None,
) -> Plan[Execution]:
    payload = body(
        code=code,
        environment=environment,
        integrations=integrations,
        entry=entry,
        argv=argv,
        files=file_inputs.inputs(files),
        limits=limits,
    )
    seconds = run_seconds(limits, DEFAULT_WALL_MS)
    return post_run("/v1/execute", one(Execution), payload, seconds=seconds)


def execute_in_session(
    sandbox_id: str,
    usual: Limits,
    code: str,
    *,
    entry: Entry | None = None,
    argv: Sequence[str] | None = None,
    files: Iterable[file_inputs.Input] | None = None,
    limits: LimitsRequest | None = None,
) -> Plan[Execution]:
    sent = file_inputs.inputs(files)
    payload = body(code=code, entry=entry, argv=argv, files=sent, limits=limits)
    seconds = run_seconds(limits, usual.wall_ms)
    path = f"/v1/sessions/{segment(sandbox_id)}/execute"
    return post_run(path, one(Execution), payload, seconds=seconds)


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
