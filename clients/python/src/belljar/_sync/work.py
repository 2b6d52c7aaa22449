# Generated from ../_async/work.py by generate_sync.py. Do not edit.
"""Executions, sessions and documents of the server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Literal, overload

from .._events import Follow
from .._models import (
    Document,
    Event,
    Execution,
    SessionInfo,
    SessionStatus,
    Skill,
    SkillDetails,
    Status,
    Trace,
    TraceFormat,
)
from .._requests import executions, files, runs, sessions, skills
from .session import Session
from .transport import Transport

TraceText = Literal["ipynb", "html", "text"]


class Executions:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(
        self,
        *,
        sandbox_id: str | None = None,
        status: Status | None = None,
        tool: str | None = None,
    ) -> Iterator[Execution]:
        """Newest first, without output and results."""
        plan = executions.executions(sandbox_id=sandbox_id, status=status, tool=tool)
        return self._transport.pages(plan)

    def get(self, execution_id: str) -> Execution:
        return self._transport.send(executions.execution(execution_id))

    def events(self, execution_id: str) -> Iterator[Event]:
        """All events from the first until the execution ends."""
        return self._transport.follow(Follow(execution_id))

    def wait(self, execution_id: str) -> Execution:
        """The record, when the execution has ended."""
        for _ in self.events(execution_id):
            pass
        return self.get(execution_id)

    def cancel(self, execution_id: str) -> bool:
        """Cancel the execution. Returns whether it was still running."""
        return self._transport.send(executions.cancel(execution_id))

    @overload
    def trace(self, execution_id: str, *, format: Literal["json"] = "json") -> Trace: ...

    @overload
    def trace(self, execution_id: str, *, format: TraceText) -> str: ...

    def trace(self, execution_id: str, *, format: TraceFormat = "json") -> Trace | str:
        """The trace of an agent's run: messages, tool calls and code. Only `json` is parsed."""
        return self._transport.send(runs.trace(execution_id, format))


class Sessions:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(
        self, *, status: SessionStatus | None = None, key: str | None = None
    ) -> Iterator[SessionInfo]:
        return self._transport.pages(sessions.sessions(status=status, key=key))

    def get(self, sandbox_id: str) -> SessionInfo:
        return self._transport.send(sessions.session(sandbox_id))

    def attach(self, sandbox_id: str) -> Session:
        """Attach to an open session and leave it open. Use it with `with`."""
        return Session(self._transport, sessions.session(sandbox_id), keep=True)

    def close(self, sandbox_id: str) -> None:
        self._transport.send(sessions.close(sandbox_id))


class Documents:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def upload(self, path: str | PathLike[str]) -> Document:
        return self._transport.send(files.upload(path))

    def fetch(self, urls: Iterable[str]) -> Sequence[Document]:
        """Let the server fetch these URLs and store what it gets as documents."""
        page = self._transport.send(files.fetch(urls))
        return page.items

    def list(self) -> Iterator[Document]:
        return self._transport.pages(files.documents())

    def get(self, document_id: str) -> Document:
        return self._transport.send(files.document(document_id))

    def read(self, document_id: str) -> bytes:
        return self._transport.send(files.read_document(document_id))

    def download(self, document_id: str, to: str | PathLike[str]) -> Path:
        return self._transport.save(files.read_document(document_id), to)

    def delete(self, document_id: str) -> None:
        self._transport.send(files.delete_document(document_id))


class Skills:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def upload(self, path: str | PathLike[str]) -> Skill:
        """Upload a skill: its directory, or a ZIP archive of it."""
        return self._transport.send(skills.upload(path))

    def replace(self, skill_id: str, path: str | PathLike[str]) -> Skill:
        """Replace the files of a skill, whose name stays."""
        return self._transport.send(skills.replace(skill_id, path))

    def list(self) -> Iterator[Skill]:
        return self._transport.pages(skills.skills())

    def get(self, skill_id: str) -> SkillDetails:
        return self._transport.send(skills.skill(skill_id))

    def read(self, skill_id: str, name: str) -> bytes:
        """Read a file of a skill, such as `SKILL.md`."""
        return self._transport.send(skills.read_file(skill_id, name))

    def delete(self, skill_id: str) -> None:
        self._transport.send(skills.delete_skill(skill_id))
