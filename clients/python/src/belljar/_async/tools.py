"""Tools, the agents that have them, and the people who are asked."""

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
    """Wherever a tool is named, its name and its id are both good."""

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
        """From a function, from Python source, from a file, or from a definition."""
        asked = definition(
            source,
            name=name,
            description=description,
            environment=environment,
            approval_action=approval_action,
        )
        return await self._transport.send(tools.create(asked))

    async def validate(self, source: ToolSource, *, name: str | None = None) -> Validation:
        """The contract, or everything that is wrong; nothing is kept."""
        return await self._transport.send(tools.validate(definition(source, name=name)))

    def list(self) -> AsyncIterator[Tool]:
        """Newest first, without their `configuration`."""
        return self._transport.pages(tools.tools())

    async def get(self, tool: str) -> Tool:
        return await self._transport.walk(tools.found(tool, tools.tool))

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
        """Change what is given; of a source, all but its name."""
        changes = tools.change(source, name, description, environment, approval_action)
        return await self._transport.walk(tools.found(tool, changes))

    async def delete(self, tool: str) -> None:
        await self._transport.walk(tools.found(tool, tools.delete_tool))

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
        """What the tool returns; raises `ExecutionError` or `ApprovalPending`."""
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
        """The whole record of a call. Arguments are a mapping, or are named here one by one."""
        plan = tools.run(
            {**(arguments or {}), **named},
            agent_id=agent_id,
            sandbox_id=sandbox_id,
            files=files,
            limits=limits,
        )
        return await self._transport.walk(tools.found(tool, plan))

    async def test(
        self, tool: str, *, sandbox_id: str | None = None, limits: LimitsRequest | None = None
    ) -> Execution:
        """Run the `test()` of a tool."""
        plan = tools.test(sandbox_id=sandbox_id, limits=limits)
        return await self._transport.walk(tools.found(tool, plan))


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
        """Whether calls of the tool by the agent run, are refused, or wait for a person."""
        return await self._transport.send(agents.set_approval(agent_id, tool_id, action))

    async def run(
        self,
        agent: str,
        message: str | None = None,
        *,
        cursor: str | None = None,
        key: str | None = None,
        documents: Iterable[Given] | None = None,
        confirmations: Mapping[str, Confirmation] | None = None,
    ) -> ChatResult:
        """Have an agent answer; `confirmations` replies to its actions, each by its `actionId`."""
        steps = runs.agent_run(agent, message, cursor, key, documents, confirmations)
        return await self._transport.walk(steps)

    async def result(self, agent: str, execution_id: str) -> ChatResult:
        """What the agent has answered, or how far it has come."""
        return await self._transport.walk(runs.agent_result(agent, execution_id))


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
        """What was asked for begins at once. Whoever asked cannot answer."""
        return await self._transport.send(approvals.decide(approval_id, "allow", scope, reason))

    async def deny(
        self, approval_id: str, *, scope: ApprovalScope | None = None, reason: str | None = None
    ) -> Approval:
        return await self._transport.send(approvals.decide(approval_id, "deny", scope, reason))

    async def wait(self, approval_id: str, *, timeout: float | None = None) -> Approval:
        """Until somebody has answered, or it is too late for an answer."""
        return await self._transport.walk(approvals.wait(approval_id, timeout))
