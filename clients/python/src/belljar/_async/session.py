"""An interpreter that remembers, with a working directory."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any

from .._models import Execution, LimitsRequest, SessionFile, SessionFiles, SessionInfo
from .._plan import Plan
from .._requests import executions, sessions
from .._requests.executions import Entry
from .._requests.files import Input
from .stream import AsyncStream
from .transport import AsyncTransport


class AsyncSession:
    """Opened by `async with` or `await`.

    Closed at the end of its `async with`, unless it is to be kept.
    """

    def __init__(
        self, transport: AsyncTransport, opening: Plan[SessionInfo], *, keep: bool
    ) -> None:
        self._transport = transport
        self._opening = opening
        self._keep = keep
        self._info: SessionInfo | None = None

    @property
    def info(self) -> SessionInfo:
        """As it was when it was opened, reset or changed."""
        if self._info is None:
            raise RuntimeError("the session is not open: use it with `async with`, or await it")
        return self._info

    @property
    def id(self) -> str:
        return self.info.sandbox_id

    def __await__(self) -> Generator[Any, None, AsyncSession]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncSession:
        return await self._open()

    async def _open(self) -> AsyncSession:
        if self._info is None:
            self._info = await self._transport.send(self._opening)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._keep:
            await self.close()

    async def run(
        self,
        code: str,
        *,
        entry: Entry | None = None,
        argv: Sequence[str] | None = None,
        files: Iterable[Input] | None = None,
        limits: LimitsRequest | None = None,
    ) -> Execution:
        """Run code with the variables, imports and files that earlier runs have left."""
        plan = executions.execute_in_session(
            self.id, self.info.limits, code, entry=entry, argv=argv, files=files, limits=limits
        )
        return await self._transport.send(plan)

    def stream(
        self,
        code: str,
        *,
        entry: Entry | None = None,
        argv: Sequence[str] | None = None,
        files: Iterable[Input] | None = None,
        limits: LimitsRequest | None = None,
    ) -> AsyncStream:
        """Run code and watch it: iterate over the events."""
        plan = executions.execute_in_session(
            self.id, self.info.limits, code, entry=entry, argv=argv, files=files, limits=limits
        )
        return AsyncStream(self._transport, plan)

    async def interrupt(self) -> bool:
        """Stop what runs, as Ctrl-C would; tells whether anything ran."""
        return await self._transport.send(sessions.interrupt(self.id))

    async def reset(self) -> None:
        """Begin again with nothing in it."""
        self._info = await self._transport.send(sessions.reset(self.id))

    async def update(
        self, *, name: str | None = None, key: str | None = None, idle_seconds: int | None = None
    ) -> None:
        plan = sessions.update(self.id, name=name, key=key, idle_seconds=idle_seconds)
        self._info = await self._transport.send(plan)

    async def close(self) -> None:
        """Delete it, with all that is in it."""
        await self._transport.send(sessions.close(self.id))

    async def files(self) -> SessionFiles:
        return await self._transport.send(sessions.files(self.id))

    async def read(self, name: str) -> bytes:
        return await self._transport.send(sessions.read(self.id, name))

    async def write(self, name: str, data: bytes | str) -> SessionFile:
        return await self._transport.send(sessions.write(self.id, name, data))

    async def upload(self, path: str | PathLike[str], name: str | None = None) -> SessionFile:
        """A local file into the working directory."""
        return await self._transport.send(sessions.upload(self.id, path, name))

    async def download(self, name: str, to: str | PathLike[str]) -> Path:
        """A file of the working directory to a local place."""
        return await self._transport.save(sessions.read(self.id, name), to)

    async def delete_file(self, name: str) -> None:
        await self._transport.send(sessions.delete_file(self.id, name))
