"""Tools, agents and approvals."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
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
from .transport import AsyncTransport


class AsyncTools:
    """Tools. A tool is selected by its name or its id."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
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
        return await self._transport.send(tools.create(payload))

    async def validate(self, source: ToolSource, *, name: str | None = None) -> Validation:
        """Check a tool without storing it: its contract, or all its errors."""
        return await self._transport.send(tools.validate(definition(source, name=name)))

    def list(self) -> AsyncIterator[Tool]:
        """Newest first, without their `configuration`."""
        return self._transport.pages(tools.tools())

    async def get(self, tool: str) -> Tool:
        return await self._transport.run_steps(tools.found(tool, tools.tool))

    async def update(
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
        return await self._transport.run_steps(tools.found(tool, changes))

    async def delete(self, tool: str) -> None:
        await self._transport.run_steps(tools.found(tool, tools.delete_tool))

    async def call(
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
        record = await self.run(
            tool,
            {**(arguments or {}), **named},
            agent_id=agent_id,
            sandbox_id=sandbox_id,
            files=files,
            limits=limits,
        )
        return tools.value(record)

    async def run(
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
        return await self._transport.run_steps(tools.found(tool, plan))

    async def test(
        self, tool: str, *, sandbox_id: str | None = None, limits: LimitsRequest | None = None
    ) -> Execution:
        """Run the `test()` of a tool."""
        plan = tools.test(sandbox_id=sandbox_id, limits=limits)
        return await self._transport.run_steps(tools.found(tool, plan))


class AsyncAgents:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self, name: str, specification: Specification, *, run_as: RunAs | None = None
    ) -> Agent:
        """The specification is YAML or JSON as text, in a file, or as a mapping."""
        return await self._transport.send(agents.create(name, specification, run_as))

    def list(self) -> AsyncIterator[Agent]:
        return self._transport.pages(agents.agents())

    async def get(self, agent_id: str) -> Agent:
        return await self._transport.send(agents.agent(agent_id))

    async def replace(
        self,
        agent_id: str,
        specification: Specification,
        *,
        name: str | None = None,
        run_as: RunAs | None = None,
    ) -> Agent:
        return await self._transport.send(agents.replace(agent_id, specification, name, run_as))

    async def delete(self, agent_id: str) -> None:
        await self._transport.send(agents.delete_agent(agent_id))

    async def attach(self, agent_id: str, tool_id: str) -> Binding:
        return await self._transport.send(agents.attach(agent_id, tool_id))

    async def detach(self, agent_id: str, tool_id: str) -> None:
        await self._transport.send(agents.detach(agent_id, tool_id))

    async def set_approval(self, agent_id: str, tool_id: str, action: ApprovalAction) -> Binding:
        """Set whether the agent's calls of a tool run, are refused, or need an approval."""
        return await self._transport.send(agents.set_approval(agent_id, tool_id, action))

    def capabilities(self, agent_id: str) -> AsyncIterator[Capability]:
        """What the agent can use: code execution, tools, functions and skills."""
        return self._transport.pages(agents.capabilities(agent_id))

    async def add_capability(self, agent_id: str, capability: Mapping[str, Any]) -> Capability:
        """Add `capability` of a catalog entry, or `{"kind": "skill", "name": "dataviz"}`."""
        return await self._transport.send(agents.add_capability(agent_id, capability))

    async def remove_capability(self, agent_id: str, kind: str, name: str) -> None:
        await self._transport.send(agents.remove_capability(agent_id, kind, name))

    async def run(
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
        return await self._transport.run_steps(steps)

    async def result(self, agent: str, execution_id: str) -> ChatResult:
        """The answer of the agent, or the status of its run."""
        return await self._transport.run_steps(runs.agent_result(agent, execution_id))


class AsyncApprovals:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, *, state: ApprovalState | None = None) -> AsyncIterator[Approval]:
        return self._transport.pages(approvals.approvals(state))

    async def get(self, approval_id: str) -> Approval:
        return await self._transport.send(approvals.approval(approval_id))

    async def allow(
        self, approval_id: str, *, scope: ApprovalScope | None = None, reason: str | None = None
    ) -> Approval:
        """Approve: the execution starts at once. The requester cannot decide it."""
        return await self._transport.send(approvals.decide(approval_id, "allow", scope, reason))

    async def deny(
        self, approval_id: str, *, scope: ApprovalScope | None = None, reason: str | None = None
    ) -> Approval:
        return await self._transport.send(approvals.decide(approval_id, "deny", scope, reason))

    async def wait(self, approval_id: str, *, timeout: float | None = None) -> Approval:
        """Wait until the approval is decided or has expired."""
        return await self._transport.run_steps(approvals.wait(approval_id, timeout))
