"""The client: every operation of the REST API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType

from .._models import (
    Artifact,
    AuditEntry,
    CodeResult,
    Execution,
    Explanation,
    File,
    LimitsRequest,
    NetworkEntry,
    StatementResult,
)
from .._requests import executions, files, identity, network, runs, sessions, statements
from .._requests.executions import Entry
from .._requests.files import Input
from .._requests.runs import Given
from .catalog import AsyncCatalog, AsyncModels
from .identity import AsyncGrants, AsyncKeys, AsyncPreferences, AsyncPrincipals, AsyncWorkspaces
from .network import AsyncIntegrations, AsyncNetworkRules, AsyncSecrets
from .session import AsyncSession
from .stream import AsyncStream
from .tools import AsyncAgents, AsyncApprovals, AsyncTools
from .transport import AsyncTransport
from .work import AsyncDocuments, AsyncExecutions, AsyncSessions, AsyncSkills


class AsyncBelljar:
    """A client of a Belljar server.

    `url` and `api_key` are taken from `BELLJAR_URL` and `BELLJAR_API_KEY` when not given.
    """

    def __init__(self, url: str | None = None, api_key: str | None = None) -> None:
        self._transport = AsyncTransport(url, api_key)
        self.executions = AsyncExecutions(self._transport)
        self.sessions = AsyncSessions(self._transport)
        self.documents = AsyncDocuments(self._transport)
        self.skills = AsyncSkills(self._transport)
        self.tools = AsyncTools(self._transport)
        self.agents = AsyncAgents(self._transport)
        self.catalog = AsyncCatalog(self._transport)
        self.models = AsyncModels(self._transport)
        self.approvals = AsyncApprovals(self._transport)
        self.workspaces = AsyncWorkspaces(self._transport)
        self.principals = AsyncPrincipals(self._transport)
        self.keys = AsyncKeys(self._transport)
        self.grants = AsyncGrants(self._transport)
        self.preferences = AsyncPreferences(self._transport)
        self.network_rules = AsyncNetworkRules(self._transport)
        self.integrations = AsyncIntegrations(self._transport)
        self.secrets = AsyncSecrets(self._transport)

    async def __aenter__(self) -> AsyncBelljar:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    async def execute(
        self,
        code: str,
        *,
        environment: str | None = None,
        entry: Entry | None = None,
        argv: Sequence[str] | None = None,
        files: Iterable[Input] | None = None,
        limits: LimitsRequest | None = None,
        integrations: Sequence[str] | None = None,
    ) -> Execution:
        """Run code in a fresh sandbox. Code that raises is a result, too: check `ok`."""
        plan = executions.execute(
            code,
            environment=environment,
            entry=entry,
            argv=argv,
            files=files,
            limits=limits,
            integrations=integrations,
        )
        return await self._transport.send(plan)

    def stream(
        self,
        code: str,
        *,
        environment: str | None = None,
        entry: Entry | None = None,
        argv: Sequence[str] | None = None,
        files: Iterable[Input] | None = None,
        limits: LimitsRequest | None = None,
        integrations: Sequence[str] | None = None,
    ) -> AsyncStream:
        """Run code in a fresh sandbox and iterate over its events."""
        plan = executions.execute(
            code,
            environment=environment,
            entry=entry,
            argv=argv,
            files=files,
            limits=limits,
            integrations=integrations,
        )
        return AsyncStream(self._transport, plan)

    def session(
        self,
        *,
        environment: str | None = None,
        key: str | None = None,
        name: str | None = None,
        limits: LimitsRequest | None = None,
        idle_seconds: int | None = None,
        files: Iterable[Input] | None = None,
        integrations: Sequence[str] | None = None,
        agent_id: str | None = None,
        keep: bool = False,
    ) -> AsyncSession:
        """Open a session, or reuse the open one with this `key`. Use it with `async with`."""
        plan = sessions.open(
            environment=environment,
            key=key,
            name=name,
            limits=limits,
            idle_seconds=idle_seconds,
            files=files,
            integrations=integrations,
            agent_id=agent_id,
        )
        return AsyncSession(self._transport, plan, keep=keep)

    async def code_execution(
        self,
        request: str,
        *,
        documents: Iterable[Given] | None = None,
        context: str | None = None,
        sandbox_id: str | None = None,
        max_rounds: int | None = None,
        model: str | None = None,
    ) -> CodeResult:
        """Let a model write and run code for a request in natural language."""
        steps = runs.code_execution(request, documents, context, sandbox_id, max_rounds, model)
        return await self._transport.run_steps(steps)

    async def code_execution_result(self, execution_id: str) -> CodeResult:
        """The result of a code execution, or its status while it runs."""
        return await self._transport.send(runs.code_execution_result(execution_id))

    async def read(self, file: File | Artifact) -> bytes:
        """The bytes of a file that an execution wrote."""
        return await self._transport.send(files.asset(file))

    async def download(self, file: File | Artifact, to: str | PathLike[str]) -> Path:
        return await self._transport.save(files.asset(file), to)

    def audit(
        self, *, action: str | None = None, principal: str | None = None
    ) -> AsyncIterator[AuditEntry]:
        """Entries of the audit log, newest first."""
        return self._transport.pages(identity.audit(action, principal))

    def network_log(
        self,
        *,
        execution_id: str | None = None,
        sandbox_id: str | None = None,
        host: str | None = None,
        allowed: bool | None = None,
    ) -> AsyncIterator[NetworkEntry]:
        """Network connections that code attempted, newest first."""
        plan = network.log(execution_id, sandbox_id, host, allowed)
        return self._transport.pages(plan)

    async def sql(self, text: str) -> list[StatementResult]:
        """Run statements in SQL, separated by `;`, and return their results.

        The first error stops and is raised; statements before it stay executed, and
        `BelljarError.statements` has their results.
        """
        return await self._transport.send(statements.run(text))

    async def explain(
        self,
        *,
        principal: str | None = None,
        tool_id: str | None = None,
        agent_id: str | None = None,
    ) -> Explanation:
        """The hosts that a call may connect to, and why. Nothing runs."""
        return await self._transport.send(identity.explain(principal, tool_id, agent_id))
