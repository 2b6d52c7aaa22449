# Generated from ../_async/client.py by generate_sync.py. Do not edit.
"""The client: every operation of the REST API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
from .catalog import Catalog, Models
from .identity import Grants, Keys, Preferences, Principals, Workspaces
from .network import Integrations, NetworkRules, Secrets
from .session import Session
from .stream import Stream
from .tools import Agents, Approvals, Tools
from .transport import Transport
from .work import Documents, Executions, Sessions, Skills


class Belljar:
    """A client of a Belljar server.

    `url` and `api_key` are taken from `BELLJAR_URL` and `BELLJAR_API_KEY` when not given.
    """

    def __init__(self, url: str | None = None, api_key: str | None = None) -> None:
        self._transport = Transport(url, api_key)
        self.executions = Executions(self._transport)
        self.sessions = Sessions(self._transport)
        self.documents = Documents(self._transport)
        self.skills = Skills(self._transport)
        self.tools = Tools(self._transport)
        self.agents = Agents(self._transport)
        self.catalog = Catalog(self._transport)
        self.models = Models(self._transport)
        self.approvals = Approvals(self._transport)
        self.workspaces = Workspaces(self._transport)
        self.principals = Principals(self._transport)
        self.keys = Keys(self._transport)
        self.grants = Grants(self._transport)
        self.preferences = Preferences(self._transport)
        self.network_rules = NetworkRules(self._transport)
        self.integrations = Integrations(self._transport)
        self.secrets = Secrets(self._transport)

    def __enter__(self) -> Belljar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    def execute(
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
        return self._transport.send(plan)

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
    ) -> Stream:
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
        return Stream(self._transport, plan)

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
    ) -> Session:
        """Open a session, or reuse the open one with this `key`. Use it with `with`."""
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
        return Session(self._transport, plan, keep=keep)

    def code_execution(
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
        return self._transport.run_steps(steps)

    def code_execution_result(self, execution_id: str) -> CodeResult:
        """The result of a code execution, or its status while it runs."""
        return self._transport.send(runs.code_execution_result(execution_id))

    def read(self, file: File | Artifact) -> bytes:
        """The bytes of a file that an execution wrote."""
        return self._transport.send(files.asset(file))

    def download(self, file: File | Artifact, to: str | PathLike[str]) -> Path:
        return self._transport.save(files.asset(file), to)

    def audit(
        self, *, action: str | None = None, principal: str | None = None
    ) -> Iterator[AuditEntry]:
        """Entries of the audit log, newest first."""
        return self._transport.pages(identity.audit(action, principal))

    def network_log(
        self,
        *,
        execution_id: str | None = None,
        sandbox_id: str | None = None,
        host: str | None = None,
        allowed: bool | None = None,
    ) -> Iterator[NetworkEntry]:
        """Network connections that code attempted, newest first."""
        plan = network.log(execution_id, sandbox_id, host, allowed)
        return self._transport.pages(plan)

    def sql(self, text: str) -> list[StatementResult]:
        """Run statements in SQL, separated by `;`, and return their results.

        The first error stops and is raised; statements before it stay executed, and
        `BelljarError.statements` has their results.
        """
        return self._transport.send(statements.run(text))

    def explain(
        self,
        *,
        principal: str | None = None,
        tool_id: str | None = None,
        agent_id: str | None = None,
    ) -> Explanation:
        """The hosts that a call may connect to, and why. Nothing runs."""
        return self._transport.send(identity.explain(principal, tool_id, agent_id))
