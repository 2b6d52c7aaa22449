from __future__ import annotations

import inspect
from typing import Any

import pytest

import belljar
from belljar import AsyncBelljar, AsyncSession, AsyncStream, Belljar, Session, Stream

WAITING = Belljar("http://127.0.0.1:9", "bj_x")
AWAITED = AsyncBelljar("http://127.0.0.1:9", "bj_x")
NOUNS = [name for name in vars(WAITING) if not name.startswith("_")]


def methods(kind: type) -> dict[str, list[inspect.Parameter]]:
    found = inspect.getmembers(kind, inspect.isfunction)
    return {
        name: list(inspect.signature(method).parameters.values())
        for name, method in found
        if not name.startswith("_")
    }


@pytest.mark.parametrize(
    ("waiting", "awaited"),
    [(Belljar, AsyncBelljar), (Session, AsyncSession), (Stream, AsyncStream)]
    + [(type(getattr(WAITING, noun)), type(getattr(AWAITED, noun))) for noun in NOUNS],
)
def test_what_one_client_can_do_the_other_can(waiting: Any, awaited: Any) -> None:
    assert methods(waiting) == methods(awaited)


def test_the_package_exports_what_it_says() -> None:
    assert all(hasattr(belljar, name) for name in belljar.__all__)
