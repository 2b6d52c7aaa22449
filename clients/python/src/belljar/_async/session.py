"""A sandbox that keeps its variables and files between executions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType

from .._models import Execution, LimitsRequest, SessionFile, SessionFiles
from .._opening import AsyncOpenSession
from .._requests import executions, sessions
from .._requests.executions import Entry
from .._requests.files import Input
from .stream import AsyncStream


class AsyncSession(AsyncOpenSession):
    """An open session. It is closed at the end of its `async with`, unless `keep` is set."""

    @property
    def id(self) -> str:
        return self.info.sandbox_id

    async def __aenter__(self) -> AsyncSession:
        return await self._open()

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
        """Interrupt the running execution, as Ctrl-C does. Returns whether there was one."""
        return await self._transport.send(sessions.interrupt(self.id))

    async def reset(self) -> None:
        """Replace the interpreter and the working directory with empty ones."""
        self._info = await self._transport.send(sessions.reset(self.id))

    async def update(
        self, *, name: str | None = None, key: str | None = None, idle_seconds: int | None = None
    ) -> None:
        plan = sessions.update(self.id, name=name, key=key, idle_seconds=idle_seconds)
        self._info = await self._transport.send(plan)

    async def close(self) -> None:
        """Delete the session with its variables and files."""
        await self._transport.send(sessions.close(self.id))

    async def files(self) -> SessionFiles:
        return await self._transport.send(sessions.files(self.id))

    async def read(self, name: str) -> bytes:
        return await self._transport.send(sessions.read(self.id, name))

    async def write(self, name: str, data: bytes | str) -> SessionFile:
        return await self._transport.send(sessions.write(self.id, name, data))

    async def upload(self, path: str | PathLike[str], name: str | None = None) -> SessionFile:
        """Copy a local file into the working directory."""
        return await self._transport.send(sessions.upload(self.id, path, name))

    async def download(self, name: str, to: str | PathLike[str]) -> Path:
        """Copy a file of the working directory to a local path."""
        return await self._transport.save(sessions.read(self.id, name), to)

    async def delete_file(self, name: str) -> None:
        await self._transport.send(sessions.delete_file(self.id, name))
