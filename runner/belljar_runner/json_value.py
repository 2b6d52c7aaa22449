"""A value as strict JSON, or the part of it that is not JSON and how to fix it.

User code made the value, but cannot influence how it is read: only `type(value)` and its real bases count, never
`__class__`, and no method of a subclass is called. The encoder gets a copy made of exact strings, numbers, lists and
dicts.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from math import isfinite
from typing import Any

from .json_fixes import fix_for
from .type_names import type_name

# The host's parser rejects 128 levels, and the frame around the value has some of its own.
_MAX_DEPTH = 120
# Integers that parsers keep exactly: signed or unsigned 64 bits.
_LEAST_INTEGER = -(1 << 63)
_GREATEST_INTEGER = (1 << 64) - 1
# People read paths; keys may have any length.
_KEY_CHARS = 60
_PATH_CHARS = 1000
_VOWELS = tuple("aeioAEIO")  # without u, as in uuid.UUID

# Created now, because a cell may replace the class. The copy has no cycle, so the encoder need not check.
_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode
_exact_str, _exact_int, _exact_float = str.__str__, int.__int__, float.__float__
_write_int, _write_float = int.__repr__, float.__repr__


class NotJson(Exception):
    """Says why a value has no JSON form, and where in it."""

    def __init__(self, problem: str, kind: type | None = None, fix: str | None = None, *, too_large: bool = False):
        super().__init__(problem)
        self.problem = problem
        self.kind = kind
        self.fix = fix
        self.too_large = too_large
        self._parts: list[str] = []

    def inside(self, part: str) -> NotJson:
        """The same error, seen from one level further out."""
        self._parts.append(part)
        return self

    def as_dict(self) -> dict[str, Any]:
        path = "$" + "".join(reversed(self._parts))
        described = {
            "path": path if len(path) <= _PATH_CHARS else path[:_PATH_CHARS] + "...",
            "type": None if self.kind is None else type_name(self.kind),
            "problem": self.problem,
            "fix": self.fix,
        }
        return described | {"too_large": True} if self.too_large else described


def strict_json(value: Any, limit: int) -> bytes:
    """The value as JSON text of at most this many bytes."""
    try:
        text = _encoded(value, limit)
    except NotJson:
        raise
    except Exception as problem:  # a thread of the user's changed the value meanwhile
        raise NotJson(f"the value could not be read: {type_name(type(problem))}") from None
    if len(text) > limit:
        raise _too_large(limit)
    return text


def _encoded(value: Any, limit: int) -> bytes:
    if _unspent(value, limit, 0) >= 0:
        try:
            return _encode(value).encode()
        except UnicodeEncodeError:
            pass  # half of a surrogate pair; the careful walk says where
    return _encode(_Reading(limit).plain(value)).encode()


def _unspent(value: Any, budget: int, depth: int) -> int:
    """Most values can be encoded as they are. Returns the budget that remains after the minimal size of such a value;
    negative if the value needs the careful reading, or is too large.
    """
    kind = type(value)
    if kind is str:
        return budget - len(value)
    if kind is int:
        return budget - 1 if _LEAST_INTEGER <= value <= _GREATEST_INTEGER else -1
    if kind is float:
        return budget - 1 if isfinite(value) else -1
    if value is None or kind is bool:
        return budget - 4
    if depth == _MAX_DEPTH:
        return -1
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                return -1
            budget = _unspent(item, budget - len(key) - 1, depth + 1)
            if budget < 0:
                return -1
        return budget
    if kind is list or kind is tuple:
        for item in value:
            budget = _unspent(item, budget - 1, depth + 1)
            if budget < 0:
                return -1
        return budget
    return -1


class _Reading:
    """Reads a value carefully. Charges the minimal size of each part, which bounds the reading of data that contains
    the same part twice at every level.
    """

    __slots__ = ("limit", "budget", "around")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.budget = limit
        self.around: set[int] = set()

    def plain(self, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            return self._string(value)
        if kind is int:
            return self._integer(value, kind)
        if kind is dict:
            return self._object(value, value.items())
        if kind is list or kind is tuple:
            return self._array(value, value)
        if kind is float:
            return self._float(value, kind)
        if value is None or kind is bool:
            self.budget -= 4
            return value
        return self._of_subclass(value, kind)

    def _of_subclass(self, value: Any, kind: type) -> Any:
        # `isinstance` would ask the value for its `__class__`.
        if issubclass(kind, str):
            return self._string(_exact_str(value))
        if issubclass(kind, int):
            return self._integer(_exact_int(value), kind)
        if issubclass(kind, float):
            return self._float(_exact_float(value), kind)
        if issubclass(kind, OrderedDict):
            return self._object(value, OrderedDict.items(value))  # its order is not that of the dict beneath it
        if issubclass(kind, dict):
            return self._object(value, dict.items(value))
        if issubclass(kind, list):
            return self._array(value, list.__iter__(value))
        if issubclass(kind, tuple):
            return self._array(value, tuple.__iter__(value))
        raise _not_json(kind)

    def _string(self, text: str) -> str:
        if not text.isascii():
            _refuse_surrogates(text)
        self.budget -= len(text) + 2
        return text

    def _integer(self, number: int, kind: type) -> int:
        if not _LEAST_INTEGER <= number <= _GREATEST_INTEGER:
            raise NotJson("readers of JSON lose digits of an integer beyond 64 bits", kind, "str(n)")
        self.budget -= 1
        return number

    def _float(self, number: float, kind: type) -> float:
        if not isfinite(number):
            raise _not_a_number(number, kind)
        self.budget -= 3
        return number

    def _array(self, value: Any, items: Any) -> list[Any]:
        self._enter(value)
        copy: list[Any] = []
        try:
            for item in items:
                copy.append(self.plain(item))
                self.budget -= 1
                if self.budget < 0:
                    raise _too_large(self.limit)
        except NotJson as refusal:
            raise refusal if refusal.too_large else refusal.inside(f"[{len(copy)}]")
        self.around.remove(id(value))
        return copy

    def _object(self, value: Any, items: Any) -> dict[str, Any]:
        self._enter(value)
        copy: dict[str, Any] = {}
        for key, item in items:
            name = self._string(key) if type(key) is str else self._string(_key(key))
            if name in copy:
                raise NotJson(f"two keys become the same string {_quoted(name)}", type(value))
            try:
                copy[name] = self.plain(item)
            except NotJson as refusal:
                raise refusal if refusal.too_large else refusal.inside(_part(name))
            self.budget -= 2
            if self.budget < 0:
                raise _too_large(self.limit)
        self.around.remove(id(value))
        return copy

    def _enter(self, value: Any) -> None:
        if id(value) in self.around:
            raise NotJson(f"{_a(type(value))} contains itself", type(value))
        if len(self.around) == _MAX_DEPTH:
            raise NotJson(f"it is nested deeper than {_MAX_DEPTH} levels", type(value))
        self.around.add(id(value))
        self.budget -= 1


def _key(key: Any) -> str:
    """A key that is no string, as `json.dumps` writes it."""
    kind = type(key)
    if key is None:
        return "null"
    if kind is bool:
        return "true" if key else "false"
    if issubclass(kind, str):
        return _exact_str(key)
    if issubclass(kind, int):
        return _digits(key)
    if issubclass(kind, float):
        if not isfinite(_exact_float(key)):
            raise _not_a_number(key, kind)
        return _write_float(key)
    raise NotJson(f"{_a(kind)} as a key is not JSON", kind, "str(key)")


def _digits(number: int) -> str:
    try:
        return _write_int(number)
    except ValueError:
        raise NotJson("an integer of so many digits cannot be a key", int, "hex(n)") from None


def _refuse_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise NotJson(
            f"the text has half of a surrogate pair at index {problem.start}, which no UTF-8 can carry",
            str, 'text.encode("utf-8", "replace").decode()',
        ) from None


def _not_json(kind: type) -> NotJson:
    return NotJson(f"{_a(kind)} is not JSON", kind, fix_for(kind))


def _not_a_number(number: float, kind: type) -> NotJson:
    return NotJson(f"{_write_float(number)} is not a number in JSON", kind, "replace it with None")


def _too_large(limit: int) -> NotJson:
    return NotJson(
        f"the value is larger than its limit of {limit} bytes as JSON",
        fix="return a part of it, or write it to a file", too_large=True,
    )


def _a(kind: type) -> str:
    name = type_name(kind)
    return f"an {name}" if name.startswith(_VOWELS) else f"a {name}"


def _part(name: str) -> str:
    return f".{name}" if name.isidentifier() and len(name) <= _KEY_CHARS else f"[{_quoted(name)}]"


def _quoted(name: str) -> str:
    return _encode(name if len(name) <= _KEY_CHARS else name[:_KEY_CHARS] + "...")
