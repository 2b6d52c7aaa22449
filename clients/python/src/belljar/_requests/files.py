"""Input files of requests, and downloads."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .._errors import BelljarError
from .._models import Artifact, Document, File, FileInput, Page
from .._plan import Plan, content, delete, get, listed, one, page, post, segment

ASSETS = "/v1/assets/"
Input = str | PathLike[str] | Document | FileInput
# Long enough for the largest document over a slow connection.
TRANSFER_SECONDS = 600.0


def inputs(files: Iterable[Input] | None) -> list[Mapping[str, Any]] | None:
    return None if files is None else [_input(file) for file in files]


def _input(file: Input) -> Mapping[str, Any]:
    if isinstance(file, Document):
        return {"document_id": file.id, "name": file.name}
    if isinstance(file, Mapping):
        return file
    path = Path(file)
    return {"name": path.name, "base64": base64.b64encode(path.read_bytes()).decode()}


def asset(file: File | Artifact) -> Plan[bytes]:
    # Only the path: the key must never follow a URL to another host.
    _, found, path = urlsplit(file.url or "").path.partition(ASSETS)
    if not found:
        raise BelljarError("file.not_found", f"the bytes of {file.name} are not kept")
    return get(ASSETS + path, content)


def upload(path: str | PathLike[str]) -> Plan[Document]:
    # Without an Idempotency-Key: the server compares no bodies as large as these.
    return Plan(
        method="POST",
        path="/v1/documents",
        read=lambda response: page(Document)(response).items[0],
        form=Path(path),
        seconds=TRANSFER_SECONDS,
    )


def fetch(urls: Iterable[str]) -> Plan[Page[Document]]:
    return post("/v1/documents", page(Document), {"urls": list(urls)}, seconds=TRANSFER_SECONDS)


def documents() -> Plan[Page[Document]]:
    return listed("/v1/documents", Document)


def document(document_id: str) -> Plan[Document]:
    return get(f"/v1/documents/{segment(document_id)}", one(Document))


def read_document(document_id: str) -> Plan[bytes]:
    return get(f"/v1/documents/{segment(document_id)}/content", content)


def delete_document(document_id: str) -> Plan[None]:
    return delete(f"/v1/documents/{segment(document_id)}")
