"""The whole API behind one object."""

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
)
from .._requests import executions, files, identity, network, runs, sessions
from .._requests.executions import Entry
from .._requests.files import Input
from .._requests.runs import Given
from .identity import Grants, Keys, Preferences, Principals, Workspaces
from .network import Integrations, NetworkRules, Secrets
from .session import Session
from .stream import Stream
from .tools import Agents, Approvals, Tools
from .transport import Transport
from .work import Documents, Executions, Sessions


class Belljar:
    """A Belljar server.

    `url` and `api_key` are taken from `BELLJAR_URL` and `BELLJAR_API_KEY` when not given.
    """

    def __init__(self, url: str | None = None, api_key: str | None = None) -> None:
        self._transport = Transport(url, api_key)
        self.executions = Executions(self._transport)
        self.sessions = Sessions(self._transport)
        self.documents = Documents(self._transport)
        self.tools = Tools(self._transport)
        self.agents = Agents(self._transport)
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
        """Run code in a fresh sandbox. Code that fails is an answer too: look at `ok`."""
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
        """Run code in a fresh sandbox and watch it: iterate over the events."""
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
        """Open a session, or the one that has this `key` already."""
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
    ) -> CodeResult:
        """Have a request in plain words carried out with code that a model writes."""
        steps = runs.code_execution(request, documents, context, sandbox_id, max_rounds)
        return self._transport.walk(steps)

    def code_execution_result(self, execution_id: str) -> CodeResult:
        """What came of it, or how far it has come."""
        return self._transport.send(runs.code_execution_result(execution_id))

    def read(self, file: File | Artifact) -> bytes:
        """The bytes of a file that an execution has left."""
        return self._transport.send(files.asset(file))

    def download(self, file: File | Artifact, to: str | PathLike[str]) -> Path:
        return self._transport.save(files.asset(file), to)

    def audit(
        self, *, action: str | None = None, principal: str | None = None
    ) -> Iterator[AuditEntry]:
        """Who did what, newest first."""
        return self._transport.pages(identity.audit(action, principal))

    def network_log(
        self,
        *,
        execution_id: str | None = None,
        sandbox_id: str | None = None,
        host: str | None = None,
        allowed: bool | None = None,
    ) -> Iterator[NetworkEntry]:
        """Whom code has tried to reach, newest first."""
        plan = network.log(execution_id, sandbox_id, host, allowed)
        return self._transport.pages(plan)

    def explain(
        self,
        *,
        principal: str | None = None,
        tool_id: str | None = None,
        agent_id: str | None = None,
    ) -> Explanation:
        """What a call could reach, and why; nothing runs."""
        return self._transport.send(identity.explain(principal, tool_id, agent_id))
