"""The address of the server and the API key: the same for both clients."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import httpx

from ._errors import BelljarError
from ._plan import CONNECT_SECONDS, Plan

DEFAULT_URL = "http://127.0.0.1:7117"


def options(url: str | None, api_key: str | None) -> dict[str, Any]:
    """Arguments of the HTTP client."""
    address = httpx.URL(url or os.environ.get("BELLJAR_URL") or DEFAULT_URL)
    key = api_key or os.environ.get("BELLJAR_API_KEY")
    if not key:
        hint = "pass api_key, or set BELLJAR_API_KEY to the key that `belljar serve` printed"
        raise BelljarError("auth.missing", "missing API key", hint=hint)
    return {
        "base_url": address,
        "headers": {"Authorization": f"Bearer {key}"},
        # A proxy from the environment must not see the key of a server on this machine.
        "trust_env": address.host not in ("127.0.0.1", "::1", "localhost"),
    }


def request_options(plan: Plan[Any], files: ExitStack) -> dict[str, Any]:
    """Arguments of an HTTP request for a plan. Its files stay open until `files` is closed."""

    def opened(path: Path) -> IO[bytes]:
        return files.enter_context(path.open("rb"))

    return {
        "method": plan.method,
        "url": plan.path,
        "params": plan.query or None,
        "headers": plan.headers,
        "json": plan.json,
        "content": opened(plan.body) if isinstance(plan.body, Path) else plan.body,
        "files": {"file": (plan.form.name, opened(plan.form))} if plan.form else None,
        "timeout": httpx.Timeout(plan.seconds, connect=CONNECT_SECONDS),
    }


def partial(to: Path) -> Path:
    """The path of a download until it is complete."""
    return to.with_name(to.name + ".part")
