"""Agents and their tools."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._models import Agent, ApprovalAction, Binding, Capability, Page, RunAs
from .._plan import Plan, body, delete, get, listed, one, post, segment, send

Specification = str | Path | Mapping[str, Any]


def create(name: str, specification: Specification, run_as: RunAs | None) -> Plan[Agent]:
    payload = body(name=name, specification=_text(specification), run_as=run_as)
    return post("/v1/agents", one(Agent), payload)


def replace(
    agent_id: str, specification: Specification, name: str | None, run_as: RunAs | None
) -> Plan[Agent]:
    payload = body(name=name, specification=_text(specification), run_as=run_as)
    return send("PUT", _path(agent_id), one(Agent), payload)


def _text(specification: Specification) -> str | Mapping[str, Any]:
    return specification.read_text("utf-8") if isinstance(specification, Path) else specification


def agents() -> Plan[Page[Agent]]:
    return listed("/v1/agents", Agent)


def agent(agent_id: str) -> Plan[Agent]:
    return get(_path(agent_id), one(Agent))


def delete_agent(agent_id: str) -> Plan[None]:
    return delete(_path(agent_id))


def attach(agent_id: str, tool_id: str) -> Plan[Binding]:
    return post(_binding(agent_id, tool_id), one(Binding))


def detach(agent_id: str, tool_id: str) -> Plan[None]:
    return delete(_binding(agent_id, tool_id))


def set_approval(agent_id: str, tool_id: str, action: ApprovalAction) -> Plan[Binding]:
    return send("PATCH", _binding(agent_id, tool_id), one(Binding), {"approval_action": action})


def capabilities(agent_id: str) -> Plan[Page[Capability]]:
    return listed(f"{_path(agent_id)}/capabilities", Capability)


def add_capability(agent_id: str, capability: Mapping[str, Any]) -> Plan[Capability]:
    return post(f"{_path(agent_id)}/capabilities", one(Capability), dict(capability))


def remove_capability(agent_id: str, kind: str, name: str) -> Plan[None]:
    return delete(f"{_path(agent_id)}/capabilities/{segment(kind)}/{segment(name)}")


def _path(agent_id: str) -> str:
    return f"/v1/agents/{segment(agent_id)}"


def _binding(agent_id: str, tool_id: str) -> str:
    return f"{_path(agent_id)}/tools/{segment(tool_id)}"
