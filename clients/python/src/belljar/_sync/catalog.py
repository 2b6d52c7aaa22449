# Generated from ../_async/catalog.py by generate_sync.py. Do not edit.
"""What can be added to agents, and the models that can be chosen."""

from __future__ import annotations

from collections.abc import Iterator

from .._models import CatalogEntry, Model
from .._requests import catalog
from .transport import Transport


class Catalog:
    """What can be added to agents."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Iterator[CatalogEntry]:
        return self._transport.pages(catalog.catalog())


class Models:
    """The models that can be chosen."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Iterator[Model]:
        """The default model first, then all models of each provider as `provider/*`."""
        return self._transport.pages(catalog.models())
