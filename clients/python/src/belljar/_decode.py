"""JSON of the server as the models of this package.

A newer server may send more: fields that a model does not have are ignored, and values that an
older client does not know stay strings.
"""

from __future__ import annotations

import re
from dataclasses import is_dataclass
from datetime import datetime
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")

# Python before 3.11 reads neither `Z` nor more digits than microseconds have.
_FRACTION = re.compile(r"\.(\d{1,6})\d*")


def decode(kind: type[T], data: Any) -> T:
    """Raises `TypeError`, `ValueError` or `AttributeError` for data of another form."""
    return cast(T, _decode(kind, data))


def moment(text: str) -> datetime:
    text = _FRACTION.sub(lambda match: "." + match[1].ljust(6, "0"), text)
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _decode(kind: Any, data: Any) -> Any:
    if isinstance(kind, type) and is_dataclass(kind):
        hints = _fields(kind)
        return kind(**{name: _decode(hints[name], data[name]) for name in hints if name in data})
    if kind is datetime:
        return moment(data)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is list:
        return [_decode(inner[0], item) for item in data]
    if origin is tuple:
        return tuple(_decode(part, item) for part, item in zip(inner, data, strict=True))
    if origin in (Union, UnionType) and data is not None:
        return _decode(inner[0], data)
    return data


@cache
def _fields(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {name: hint for name, hint in hints.items() if not name.startswith("_")}
