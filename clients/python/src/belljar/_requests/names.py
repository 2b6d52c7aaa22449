"""Objects that can be selected by their name or their id."""

from __future__ import annotations

import uuid
from typing import Any, Protocol, TypeVar

from .._errors import BelljarError
from .._models import Page
from .._plan import Plan, Steps


class Named(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=Named)


def id_of(noun: str, name_or_id: str, plan: Plan[Page[N]]) -> Steps[str]:
    """The id; `plan` lists all objects of this kind."""
    if is_id(name_or_id):
        return name_or_id
    while True:
        listed: Page[Any] = yield plan
        for item in listed.items:
            if item.name == name_or_id:
                return str(item.id)
        if listed.next_cursor is None:
            message = f"there is no {noun} called {name_or_id!r}"
            hint = f"{noun}s.list shows what there is"
            raise BelljarError("object.not_found", message, hint=hint)
        plan = plan.after(listed.next_cursor)


def is_id(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False
