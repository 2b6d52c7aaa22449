"""Clients of model providers that code can use without an import: `openai_client` and the like, and `client`.

They are builtins, so that the user's own names take precedence. Nothing is imported and no key is read before one of
them is used.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable
from typing import Any, NamedTuple

_environ = os.environ


class _Provider(NamedTuple):
    name: str
    key: str
    # Other variables that determine a client.
    address: str
    make: Callable[[str], Any]


def _openai(key: str) -> Any:
    from openai import OpenAI
    return OpenAI(api_key=key)


def _anthropic(key: str) -> Any:
    from anthropic import Anthropic
    return Anthropic(api_key=key)


def _gemini(key: str) -> Any:
    from google.genai import Client
    return Client(api_key=key)


_OPENAI = _Provider("OpenAI", "OPENAI_API_KEY", "OPENAI_BASE_URL", _openai)
_ANTHROPIC = _Provider("Anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", _anthropic)
_GEMINI = _Provider("Gemini", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", _gemini)

_clients: dict[str, tuple[Any, Any]] = {}


def set_up() -> None:
    builtins.openai_client = _Lazy(_OPENAI)
    builtins.anthropic_client = _Lazy(_ANTHROPIC)
    builtins.gemini_client = _Lazy(_GEMINI)
    builtins.client = _Clients()


def _client(provider: _Provider) -> Any:
    """Reuses a client while its settings stay the same: the caller may change from run to run."""
    key = _environ.get(provider.key)
    if not key:
        raise RuntimeError(f"{provider.name} is not configured for this deployment")
    settings = key, _environ.get(provider.address)
    before, client = _clients.get(provider.name, (None, None))
    if before != settings:
        try:
            client = provider.make(key)
        except ImportError as missing:
            raise RuntimeError(f"{provider.name} is unavailable: Python SDK missing ({missing})") from missing
        _clients[provider.name] = settings, client
    return client


class _Lazy:
    """Stands for a client, even if code asks for its type."""

    __slots__ = ("_provider",)

    def __init__(self, provider: _Provider) -> None:
        object.__setattr__(self, "_provider", provider)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name.startswith("_repr_"):
            raise AttributeError(name)  # Python and displays ask any object for these
        return getattr(_client(self._provider), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_client(self._provider), name, value)

    def __dir__(self) -> list[str]:
        return dir(_client(self._provider))

    def __repr__(self) -> str:
        try:
            return repr(_client(self._provider))
        except RuntimeError as reason:
            return f"<{reason}>"

    @property
    def __class__(self) -> type:
        try:
            return type(_client(self._provider))
        except RuntimeError:
            return _Lazy


class _Clients:
    """`client.openai`, `client.anthropic` and `client.gemini`."""

    __slots__ = ()

    @property
    def openai(self) -> Any:
        return _client(_OPENAI)

    @property
    def anthropic(self) -> Any:
        return _client(_ANTHROPIC)

    @property
    def gemini(self) -> Any:
        return _client(_GEMINI)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"client has no attribute {name!r}; use openai, anthropic or gemini, or create your own client"
        )

    def __repr__(self) -> str:
        return "<client: .openai, .anthropic, .gemini>"
