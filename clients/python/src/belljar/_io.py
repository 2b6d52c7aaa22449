"""The steps that wait in one way in the synchronous client and in another in the asynchronous one.

`generate_sync.py` replaces `async_x` with `x`, so each pair has one signature.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from ._connection import request_options
from ._models import Execution, File
from ._plan import Plan
from ._requests import files

if TYPE_CHECKING:
    from ._async.transport import AsyncTransport
    from ._sync.transport import Transport

T = TypeVar("T")

# One read of an uploaded file. A thread per read costs more than the read if it is much smaller.
CHUNK_BYTES = 64 * 1024


def sleep(seconds: float) -> None:
    time.sleep(seconds)


async def async_sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


def write(file: IO[bytes], data: bytes) -> None:
    file.write(data)


async def async_write(file: IO[bytes], data: bytes) -> None:
    await asyncio.to_thread(file.write, data)


def request(plan: Plan[Any], opened: ExitStack) -> dict[str, Any]:
    return request_options(plan, opened)


def async_request(plan: Plan[Any], opened: ExitStack) -> dict[str, Any]:
    options = request_options(plan, opened)
    if isinstance(plan.body, Path):
        options["content"] = _chunks(options["content"])
    return options


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
        yield chunk


def displayable(transport: Transport, result: T) -> T:
    """The result, whose images a notebook can show: it loads them when it displays them."""
    if isinstance(result, Execution):
        for file in result.files:
            displayable(transport, file)
    elif isinstance(result, File) and result.url:
        result._load = functools.partial(_load, transport, result)
    return result


def _load(transport: Transport, file: File) -> bytes:
    return transport.send(files.asset(file))


def async_displayable(transport: AsyncTransport, result: T) -> T:  # noqa: ARG001
    """The unchanged result: a notebook awaits nothing while it displays a value."""
    return result
