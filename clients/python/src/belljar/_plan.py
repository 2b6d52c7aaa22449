"""A request as a value: what is sent, how the response is read, and when it may be retried.

Both clients send the same plans. Nothing in this module connects to a server or waits.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx

from ._decode import decode
from ._errors import BelljarError, Detail, Unreachable
from ._models import Page, StatementResult

T = TypeVar("T")

# A server on the same network answers in milliseconds; one that is busy writing, in seconds.
RESPONSE_SECONDS = 60.0
CONNECT_SECONDS = 10.0
# Before code runs, an environment may have to be built, files fetched, and capacity become free.
PREPARATION_SECONDS = 300.0
# The largest page that a server returns.
PAGE_ITEMS = 200
RETRIES_MAX = 4
# A caller decides whether to retry after a longer time than this.
RETRY_SECONDS_MAX = 30


@dataclass(frozen=True, kw_only=True)
class Plan(Generic[T]):
    method: str
    path: str
    read: Callable[[httpx.Response], T]
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    json: Any = None
    body: bytes | Path | None = None
    form: Path | None = None
    """The file of a `multipart/form-data` body."""
    seconds: float = RESPONSE_SECONDS
    runs: bool = False
    """It runs code, and an error response means that no code ran."""

    @property
    def repeatable(self) -> bool:
        """Sending it again after an error response is the same as sending it once."""
        return self.method == "GET" or self.runs or "Idempotency-Key" in self.headers

    def after(self, cursor: str) -> Plan[T]:
        return replace(self, query={**self.query, "cursor": cursor})

    def later(self) -> Plan[T]:
        """The same request, answered at once while the run continues."""
        return replace(self, headers={**self.headers, "Prefer": "respond-async"})


@dataclass(frozen=True)
class Pause:
    seconds: float


# A sequence of requests: it yields plans and pauses, receives results, and returns the last one.
Steps = Generator[Plan[Any] | Pause, Any, T]


def get(path: str, read: Callable[[httpx.Response], T], **query: Any) -> Plan[T]:
    return Plan(method="GET", path=path, read=read, query=_given(query))


def listed(path: str, kind: type[T], **query: Any) -> Plan[Page[T]]:
    """The first page of a list; `Plan.after` is the next one."""
    return get(path, page(kind), limit=PAGE_ITEMS, **query)


def post(
    path: str,
    read: Callable[[httpx.Response], T],
    json: Any = None,
    *,
    seconds: float = RESPONSE_SECONDS,
) -> Plan[T]:
    # Created with the plan, so that a retry of the same plan has the same key.
    key = {"Idempotency-Key": str(uuid.uuid4())}
    return Plan(method="POST", path=path, read=read, json=json, headers=key, seconds=seconds)


def post_run(
    path: str,
    read: Callable[[httpx.Response], T],
    json: Any,
    *,
    seconds: float,
) -> Plan[T]:
    # Without an Idempotency-Key: a run with a key continues when no client waits for it.
    return Plan(method="POST", path=path, read=read, json=json, seconds=seconds, runs=True)


def send(method: str, path: str, read: Callable[[httpx.Response], T], json: Any) -> Plan[T]:
    return Plan(method=method, path=path, read=read, json=json)


def delete(path: str) -> Plan[None]:
    return Plan(method="DELETE", path=path, read=nothing)


def body(**fields: Any) -> dict[str, Any]:
    """A body without the fields that are None."""
    return _given(fields)


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def segment(text: str) -> str:
    return quote(text, safe="")


def one(kind: type[T]) -> Callable[[httpx.Response], T]:
    return lambda response: decode(kind, response.json())


def page(kind: type[T]) -> Callable[[httpx.Response], Page[T]]:
    def read(response: httpx.Response) -> Page[T]:
        data = response.json()
        items = [decode(kind, item) for item in data["items"]]
        return Page(items=items, next_cursor=data.get("next_cursor"))

    return read


def content(response: httpx.Response) -> bytes:
    return response.content


def nothing(_: httpx.Response) -> None:
    return None


def json_of(response: httpx.Response) -> Any:
    return response.json()


def retry_seconds(plan: Plan[Any], response: httpx.Response, retries: int) -> float | None:
    """How long to wait before the plan is sent again; `None` if it must not be."""
    after = response.headers.get("Retry-After", "")
    if response.status_code not in (429, 503) or not plan.repeatable or not after.isdecimal():
        return None
    seconds = int(after)
    return float(seconds) if retries < RETRIES_MAX and seconds <= RETRY_SECONDS_MAX else None


def answer(plan: Plan[T], response: httpx.Response) -> T:
    """The result of the plan. Raises the error of an error response."""
    if not response.is_success:
        raise refusal(response)
    try:
        return plan.read(response)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        message = f"the response to {plan.method} {plan.path} cannot be read: {error}"
        raise Unreachable(
            "answer.unreadable",
            message,
            hint="check that the URL is of a Belljar server that is not newer than this package",
            status=response.status_code,
        ) from error


def refusal(response: httpx.Response) -> BelljarError:
    request_id = response.headers.get("X-Request-Id")
    try:
        problem = response.json()
        return BelljarError(
            problem["code"],
            problem["detail"],
            hint=problem.get("hint"),
            status=response.status_code,
            errors=tuple(decode(Detail, detail) for detail in problem.get("errors", [])),
            request_id=request_id,
            statements=tuple(
                decode(StatementResult, result) for result in problem.get("statements", [])
            ),
        )
    except (AttributeError, LookupError, TypeError, ValueError):
        # A proxy before the server has responded.
        code, message = "answer.unreadable", f"HTTP status {response.status_code} without a problem"
        return Unreachable(code, message, status=response.status_code, request_id=request_id)


def unreachable(server: httpx.URL, error: httpx.TransportError) -> Unreachable:
    address, reason = str(server).rstrip("/"), str(error) or type(error).__name__
    return Unreachable(
        "server.unreachable",
        f"no response from {address}: {reason}",
        hint="start one with `belljar serve`, or set BELLJAR_URL or Belljar(url) to another",
    )
