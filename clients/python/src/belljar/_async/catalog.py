"""What can be added to agents, and the models that can be chosen."""

from __future__ import annotations

from collections.abc import AsyncIterator

from .._models import CatalogEntry, Model
from .._requests import catalog
from .transport import AsyncTransport


class AsyncCatalog:
    """What can be added to agents."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self) -> AsyncIterator[CatalogEntry]:
        return self._transport.pages(catalog.catalog())


class AsyncModels:
    """The models that can be chosen."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self) -> AsyncIterator[Model]:
        """The default model first, then all models of each provider as `provider/*`."""
        return self._transport.pages(catalog.models())
