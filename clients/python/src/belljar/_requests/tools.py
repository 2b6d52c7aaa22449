"""Tools: create, find by id or name, call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from .._errors import ApprovalPending
from .._models import ApprovalAction, Execution, LimitsRequest, Page, Tool, Validation
from .._plan import Plan, Steps, body, delete, get, listed, one, post, post_run, segment, send
from .._tool_source import ToolSource, definition
from . import files as file_inputs
from .executions import MAX_WALL_MS, run_seconds
from .names import id_of

T = TypeVar("T")


def create(definition: Mapping[str, Any]) -> Plan[Tool]:
    return post("/v1/tools", one(Tool), definition)


def validate(definition: Mapping[str, Any]) -> Plan[Validation]:
    return post("/v1/tools/validate", one(Validation), definition)


def tools() -> Plan[Page[Tool]]:
    return listed("/v1/tools", Tool)


def tool(tool_id: str) -> Plan[Tool]:
    return get(_path(tool_id), one(Tool))


def change(
    source: ToolSource | None,
    name: str | None,
    description: str | None,
    environment: str | None,
    approval_action: ApprovalAction | None,
) -> Callable[[str], Plan[Tool]]:
    changes = body(
        name=name,
        description=description,
        configuration=definition(source)["configuration"] if source is not None else None,
        environment=environment,
        approval_action=approval_action,
    )
    return lambda tool_id: send("PATCH", _path(tool_id), one(Tool), changes)


def delete_tool(tool_id: str) -> Plan[None]:
    return delete(_path(tool_id))


def run(
    arguments: Mapping[str, Any],
    *,
    agent_id: str | None = None,
    sandbox_id: str | None = None,
    files: Iterable[file_inputs.Input] | None = None,
    limits: LimitsRequest | None = None,
) -> Callable[[str], Plan[Execution]]:
    payload = body(
        arguments=dict(arguments),
        agent_id=agent_id,
        sandbox_id=sandbox_id,
        files=file_inputs.inputs(files),
        limits=limits,
    )
    return _execution("call", payload, limits)


def test(
    *, sandbox_id: str | None = None, limits: LimitsRequest | None = None
) -> Callable[[str], Plan[Execution]]:
    return _execution("test", body(sandbox_id=sandbox_id, limits=limits), limits)


def _execution(
    verb: str, payload: Mapping[str, Any], limits: LimitsRequest | None
) -> Callable[[str], Plan[Execution]]:
    read, seconds = one(Execution), run_seconds(limits, MAX_WALL_MS)
    return lambda tool_id: post_run(f"{_path(tool_id)}/{verb}", read, payload, seconds=seconds)


def value(execution: Execution) -> Any:
    if execution.status == "waiting_approval":
        raise ApprovalPending(execution)
    return execution.raise_for_error().value


def found(name_or_id: str, plan: Callable[[str], Plan[T]]) -> Steps[T]:
    """The plan for a tool that is selected by its id or its name."""
    result: T = yield plan((yield from id_of("tool", name_or_id, tools())))
    return result


def _path(tool_id: str) -> str:
    return f"/v1/tools/{segment(tool_id)}"
