# Generated from ../_async/tools.py by generate_sync.py. Do not edit.
"""Tools, agents and approvals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .._models import (
    Agent,
    Approval,
    ApprovalAction,
    ApprovalScope,
    ApprovalState,
    Binding,
    Capability,
    ChatResult,
    Confirmation,
    Execution,
    LimitsRequest,
    RunAs,
    Tool,
    Validation,
)
from .._requests import agents, approvals, runs, tools
from .._requests.agents import Specification
from .._requests.files import Input
from .._requests.runs import Given
from .._tool_source import ToolSource, definition
from .transport import Transport


class Tools:
    """Tools. A tool is selected by its name or its id."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self,
        source: ToolSource,
        *,
        name: str | None = None,
        description: str | None = None,
        environment: str | None = None,
        approval_action: ApprovalAction | None = None,
    ) -> Tool:
        """Create a tool from a function, Python source, a file, or a definition."""
        payload = definition(
            source,
            name=name,
            description=description,
            environment=environment,
            approval_action=approval_action,
        )
        return self._transport.send(tools.create(payload))

    def validate(self, source: ToolSource, *, name: str | None = None) -> Validation:
        """Check a tool without storing it: its contract, or all its errors."""
        return self._transport.send(tools.validate(definition(source, name=name)))

    def list(self) -> Iterator[Tool]:
        """Newest first, without their `configuration`."""
        return self._transport.pages(tools.tools())

    def get(self, tool: str) -> Tool:
        return self._transport.run_steps(tools.found(tool, tools.tool))

    def update(
        self,
        tool: str,
        *,
        source: ToolSource | None = None,
        name: str | None = None,
        description: str | None = None,
        environment: str | None = None,
        approval_action: ApprovalAction | None = None,
    ) -> Tool:
        """Change the given fields. A source may change everything but the name."""
        changes = tools.change(source, name, description, environment, approval_action)
        return self._transport.run_steps(tools.found(tool, changes))

    def delete(self, tool: str) -> None:
        self._transport.run_steps(tools.found(tool, tools.delete_tool))

    def call(
        self,
        tool: str,
        /,
        arguments: Mapping[str, Any] | None = None,
        *,
        agent_id: str | None = None,
        sandbox_id: str | None = None,
        files: Iterable[Input] | None = None,
        limits: LimitsRequest | None = None,
        **named: Any,
    ) -> Any:
        """Call a tool and return its value. Raises `ExecutionError` or `ApprovalPending`."""
        record = self.run(
            tool,
            {**(arguments or {}), **named},
            agent_id=agent_id,
            sandbox_id=sandbox_id,
            files=files,
            limits=limits,
        )
        return tools.value(record)

    def run(
        self,
        tool: str,
        /,
        arguments: Mapping[str, Any] | None = None,
        *,
        agent_id: str | None = None,
        sandbox_id: str | None = None,
        files: Iterable[Input] | None = None,
        limits: LimitsRequest | None = None,
        **named: Any,
    ) -> Execution:
        """Call a tool and return the record. Arguments are a mapping or keyword arguments."""
        plan = tools.run(
            {**(arguments or {}), **named},
            agent_id=agent_id,
            sandbox_id=sandbox_id,
            files=files,
            limits=limits,
        )
        return self._transport.run_steps(tools.found(tool, plan))

    def test(
        self, tool: str, *, sandbox_id: str | None = None, limits: LimitsRequest | None = None
    ) -> Execution:
        """Run the `test()` of a tool."""
        plan = tools.test(sandbox_id=sandbox_id, limits=limits)
        return self._transport.run_steps(tools.found(tool, plan))


class Agents:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self, name: str, specification: Specification, *, run_as: RunAs | None = None
    ) -> Agent:
        """The specification is YAML or JSON as text, in a file, or as a mapping."""
        return self._transport.send(agents.create(name, specification, run_as))

    def list(self) -> Iterator[Agent]:
        return self._transport.pages(agents.agents())

    def get(self, agent_id: str) -> Agent:
        return self._transport.send(agents.agent(agent_id))

    def replace(
        self,
        agent_id: str,
        specification: Specification,
        *,
        name: str | None = None,
        run_as: RunAs | None = None,
    ) -> Agent:
        return self._transport.send(agents.replace(agent_id, specification, name, run_as))

    def delete(self, agent_id: str) -> None:
        self._transport.send(agents.delete_agent(agent_id))

    def attach(self, agent_id: str, tool_id: str) -> Binding:
        return self._transport.send(agents.attach(agent_id, tool_id))

    def detach(self, agent_id: str, tool_id: str) -> None:
        self._transport.send(agents.detach(agent_id, tool_id))

    def set_approval(self, agent_id: str, tool_id: str, action: ApprovalAction) -> Binding:
        """Set whether the agent's calls of a tool run, are refused, or need an approval."""
        return self._transport.send(agents.set_approval(agent_id, tool_id, action))

    def capabilities(self, agent_id: str) -> Iterator[Capability]:
        """What the agent can use: code execution, tools, functions and skills."""
        return self._transport.pages(agents.capabilities(agent_id))

    def add_capability(self, agent_id: str, capability: Mapping[str, Any]) -> Capability:
        """Add `capability` of a catalog entry, or `{"kind": "skill", "name": "dataviz"}`."""
        return self._transport.send(agents.add_capability(agent_id, capability))

    def remove_capability(self, agent_id: str, kind: str, name: str) -> None:
        self._transport.send(agents.remove_capability(agent_id, kind, name))

    def run(
        self,
        agent: str,
        message: str | None = None,
        *,
        cursor: str | None = None,
        key: str | None = None,
        documents: Iterable[Given] | None = None,
        confirmations: Mapping[str, Confirmation] | None = None,
        model: str | None = None,
    ) -> ChatResult:
        """Send a message to an agent; `confirmations` decides its actions, each by `actionId`."""
        steps = runs.agent_run(agent, message, cursor, key, documents, confirmations, model)
        return self._transport.run_steps(steps)

    def result(self, agent: str, execution_id: str) -> ChatResult:
        """The answer of the agent, or the status of its run."""
        return self._transport.run_steps(runs.agent_result(agent, execution_id))


class Approvals:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, state: ApprovalState | None = None) -> Iterator[Approval]:
        return self._transport.pages(approvals.approvals(state))

    def get(self, approval_id: str) -> Approval:
        return self._transport.send(approvals.approval(approval_id))

    def allow(
        self, approval_id: str, *, scope: ApprovalScope | None = None, reason: str | None = None
    ) -> Approval:
        """Approve: the execution starts at once. The requester cannot decide it."""
        return self._transport.send(approvals.decide(approval_id, "allow", scope, reason))

    def deny(
        self, approval_id: str, *, scope: ApprovalScope | None = None, reason: str | None = None
    ) -> Approval:
        return self._transport.send(approvals.decide(approval_id, "deny", scope, reason))

    def wait(self, approval_id: str, *, timeout: float | None = None) -> Approval:
        """Wait until the approval is decided or has expired."""
        return self._transport.run_steps(approvals.wait(approval_id, timeout))
