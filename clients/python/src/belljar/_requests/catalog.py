"""What can be added to agents, and the models that can be chosen."""

from __future__ import annotations

from .._models import CatalogEntry, Model, Page
from .._plan import Plan, listed


def catalog() -> Plan[Page[CatalogEntry]]:
    return listed("/v1/catalog", CatalogEntry)


def models() -> Plan[Page[Model]]:
    return listed("/v1/models", Model)
