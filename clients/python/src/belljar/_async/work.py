"""Executions, sessions and documents of the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
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
from .session import AsyncSession
from .transport import AsyncTransport

TraceText = Literal["ipynb", "html", "text"]


class AsyncExecutions:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(
        self,
        *,
        sandbox_id: str | None = None,
        status: Status | None = None,
        tool: str | None = None,
    ) -> AsyncIterator[Execution]:
        """Newest first, without output and results."""
        plan = executions.executions(sandbox_id=sandbox_id, status=status, tool=tool)
        return self._transport.pages(plan)

    async def get(self, execution_id: str) -> Execution:
        return await self._transport.send(executions.execution(execution_id))

    def events(self, execution_id: str) -> AsyncIterator[Event]:
        """All events from the first until the execution ends."""
        return self._transport.follow(Follow(execution_id))

    async def wait(self, execution_id: str) -> Execution:
        """The record, when the execution has ended."""
        async for _ in self.events(execution_id):
            pass
        return await self.get(execution_id)

    async def cancel(self, execution_id: str) -> bool:
        """Cancel the execution. Returns whether it was still running."""
        return await self._transport.send(executions.cancel(execution_id))

    @overload
    async def trace(self, execution_id: str, *, format: Literal["json"] = "json") -> Trace: ...

    @overload
    async def trace(self, execution_id: str, *, format: TraceText) -> str: ...

    async def trace(self, execution_id: str, *, format: TraceFormat = "json") -> Trace | str:
        """The trace of an agent's run: messages, tool calls and code. Only `json` is parsed."""
        return await self._transport.send(runs.trace(execution_id, format))


class AsyncSessions:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(
        self, *, status: SessionStatus | None = None, key: str | None = None
    ) -> AsyncIterator[SessionInfo]:
        return self._transport.pages(sessions.sessions(status=status, key=key))

    async def get(self, sandbox_id: str) -> SessionInfo:
        return await self._transport.send(sessions.session(sandbox_id))

    def attach(self, sandbox_id: str) -> AsyncSession:
        """Attach to an open session and leave it open. Use it with `async with`."""
        return AsyncSession(self._transport, sessions.session(sandbox_id), keep=True)

    async def close(self, sandbox_id: str) -> None:
        await self._transport.send(sessions.close(sandbox_id))


class AsyncDocuments:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def upload(self, path: str | PathLike[str]) -> Document:
        return await self._transport.send(files.upload(path))

    async def fetch(self, urls: Iterable[str]) -> Sequence[Document]:
        """Let the server fetch these URLs and store what it gets as documents."""
        page = await self._transport.send(files.fetch(urls))
        return page.items

    def list(self) -> AsyncIterator[Document]:
        return self._transport.pages(files.documents())

    async def get(self, document_id: str) -> Document:
        return await self._transport.send(files.document(document_id))

    async def read(self, document_id: str) -> bytes:
        return await self._transport.send(files.read_document(document_id))

    async def download(self, document_id: str, to: str | PathLike[str]) -> Path:
        return await self._transport.save(files.read_document(document_id), to)

    async def delete(self, document_id: str) -> None:
        await self._transport.send(files.delete_document(document_id))


class AsyncSkills:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def upload(self, path: str | PathLike[str]) -> Skill:
        """Upload a skill: its directory, or a ZIP archive of it."""
        return await self._transport.send(skills.upload(path))

    async def replace(self, skill_id: str, path: str | PathLike[str]) -> Skill:
        """Replace the files of a skill, whose name stays."""
        return await self._transport.send(skills.replace(skill_id, path))

    def list(self) -> AsyncIterator[Skill]:
        return self._transport.pages(skills.skills())

    async def get(self, skill_id: str) -> SkillDetails:
        return await self._transport.send(skills.skill(skill_id))

    async def read(self, skill_id: str, name: str) -> bytes:
        """Read a file of a skill, such as `SKILL.md`."""
        return await self._transport.send(skills.read_file(skill_id, name))

    async def delete(self, skill_id: str) -> None:
        await self._transport.send(skills.delete_skill(skill_id))
