# Generated from ../_async/session.py by generate_sync.py. Do not edit.
"""A sandbox that keeps its variables and files between executions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType

from .._models import Execution, LimitsRequest, SessionFile, SessionFiles
from .._opening import OpenSession
from .._requests import executions, sessions
from .._requests.executions import Entry
from .._requests.files import Input
from .stream import Stream


class Session(OpenSession):
    """An open session. It is closed at the end of its `with`, unless `keep` is set."""

    @property
    def id(self) -> str:
        return self.info.sandbox_id

    def __enter__(self) -> Session:
        return self._open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._keep:
            self.close()

    def run(
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
        return self._transport.send(plan)

    def stream(
        self,
        code: str,
        *,
        entry: Entry | None = None,
        argv: Sequence[str] | None = None,
        files: Iterable[Input] | None = None,
        limits: LimitsRequest | None = None,
    ) -> Stream:
        """Run code and watch it: iterate over the events."""
        plan = executions.execute_in_session(
            self.id, self.info.limits, code, entry=entry, argv=argv, files=files, limits=limits
        )
        return Stream(self._transport, plan)

    def interrupt(self) -> bool:
        """Interrupt the running execution, as Ctrl-C does. Returns whether there was one."""
        return self._transport.send(sessions.interrupt(self.id))

    def reset(self) -> None:
        """Replace the interpreter and the working directory with empty ones."""
        self._info = self._transport.send(sessions.reset(self.id))

    def update(
        self, *, name: str | None = None, key: str | None = None, idle_seconds: int | None = None
    ) -> None:
        plan = sessions.update(self.id, name=name, key=key, idle_seconds=idle_seconds)
        self._info = self._transport.send(plan)

    def close(self) -> None:
        """Delete the session with its variables and files."""
        self._transport.send(sessions.close(self.id))

    def files(self) -> SessionFiles:
        return self._transport.send(sessions.files(self.id))

    def read(self, name: str) -> bytes:
        return self._transport.send(sessions.read(self.id, name))

    def write(self, name: str, data: bytes | str) -> SessionFile:
        return self._transport.send(sessions.write(self.id, name, data))

    def upload(self, path: str | PathLike[str], name: str | None = None) -> SessionFile:
        """Copy a local file into the working directory."""
        return self._transport.send(sessions.upload(self.id, path, name))

    def download(self, name: str, to: str | PathLike[str]) -> Path:
        """Copy a file of the working directory to a local path."""
        return self._transport.save(sessions.read(self.id, name), to)

    def delete_file(self, name: str) -> None:
        self._transport.send(sessions.delete_file(self.id, name))
