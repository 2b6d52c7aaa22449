"""Sessions, and the files of their working directories."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from urllib.parse import quote

from .._models import LimitsRequest, Page, SessionFile, SessionFiles, SessionInfo, SessionStatus
from .._plan import (
    PREPARATION_SECONDS,
    Plan,
    body,
    content,
    delete,
    get,
    json_of,
    listed,
    one,
    post,
    segment,
    send,
)
from . import files as file_inputs


def open(
    *,
    environment: str | None = None,
    key: str | None = None,
    name: str | None = None,
    limits: LimitsRequest | None = None,
    idle_seconds: int | None = None,
    files: Iterable[file_inputs.Input] | None = None,
    integrations: Sequence[str] | None = None,
    agent_id: str | None = None,
) -> Plan[SessionInfo]:
    payload = body(
        environment=environment,
        integrations=integrations,
        agent_id=agent_id,
        key=key,
        name=name,
        limits=limits,
        idle_seconds=idle_seconds,
        files=file_inputs.inputs(files),
    )
    return post("/v1/sessions", one(SessionInfo), payload, seconds=PREPARATION_SECONDS)


def sessions(
    *, status: SessionStatus | None = None, key: str | None = None
) -> Plan[Page[SessionInfo]]:
    return listed("/v1/sessions", SessionInfo, status=status, key=key)


def session(sandbox_id: str) -> Plan[SessionInfo]:
    return get(_path(sandbox_id), one(SessionInfo))


def update(
    sandbox_id: str,
    *,
    name: str | None = None,
    key: str | None = None,
    idle_seconds: int | None = None,
) -> Plan[SessionInfo]:
    changes = body(name=name, key=key, idle_seconds=idle_seconds)
    return send("PATCH", _path(sandbox_id), one(SessionInfo), changes)


def close(sandbox_id: str) -> Plan[None]:
    return delete(_path(sandbox_id))


def interrupt(sandbox_id: str) -> Plan[bool]:
    path = f"{_path(sandbox_id)}/interrupt"
    return post(path, lambda response: bool(json_of(response)["interrupted"]))


def reset(sandbox_id: str) -> Plan[SessionInfo]:
    path = f"{_path(sandbox_id)}/reset"
    return post(path, one(SessionInfo), seconds=PREPARATION_SECONDS)


def files(sandbox_id: str) -> Plan[SessionFiles]:
    return get(f"{_path(sandbox_id)}/files", one(SessionFiles))


def read(sandbox_id: str, name: str) -> Plan[bytes]:
    return get(_file(sandbox_id, name), content)


def write(sandbox_id: str, name: str, data: bytes | str) -> Plan[SessionFile]:
    return _put(sandbox_id, name, data.encode() if isinstance(data, str) else data)


def upload(sandbox_id: str, path: str | PathLike[str], name: str | None) -> Plan[SessionFile]:
    return _put(sandbox_id, name or Path(path).name, Path(path))


def _put(sandbox_id: str, name: str, data: bytes | Path) -> Plan[SessionFile]:
    return Plan(
        method="PUT",
        path=_file(sandbox_id, name),
        read=one(SessionFile),
        body=data,
        seconds=file_inputs.TRANSFER_SECONDS,
    )


def delete_file(sandbox_id: str, name: str) -> Plan[None]:
    return delete(_file(sandbox_id, name))


def _path(sandbox_id: str) -> str:
    return f"/v1/sessions/{segment(sandbox_id)}"


def _file(sandbox_id: str, name: str) -> str:
    return f"{_path(sandbox_id)}/files/{quote(name)}"
