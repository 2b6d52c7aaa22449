"""Suggests what to return instead of a value that is not JSON, by its type.

Types are recognized by the names of their bases: no library is imported, and no code of the value is called.
"""

from __future__ import annotations

from .type_names import bases_of, has, qualified_name_of

_TO_LIST = "call .tolist() on it"
_ISO = "call .isoformat() on it"
_LIST = "list(x)"
_SORTED = "sorted(x) or list(x)"
_DECODE = "decode it, or write it to a file"
_CALL = "return what it returns: call it"
_TEXT = "str(x)"
_NONE = "replace it with None"

_BY_PACKAGE = {
    "cognite": "Use the .dump() method on Cognite SDK objects",
    "numpy": _TO_LIST,
}
_BY_TYPE = {
    ("pandas", "DataFrame"): 'call .to_dict("records") on it',
    ("pandas", "Series"): _TO_LIST,
    ("pandas", "Index"): _TO_LIST,
    ("pandas", "NAType"): _NONE,
    ("pandas", "NaTType"): _NONE,
    ("datetime", "date"): _ISO,
    ("datetime", "time"): _ISO,
    ("datetime", "timedelta"): "call .total_seconds() on it",
    ("decimal", "Decimal"): "float(x) or str(x)",
    ("enum", "Enum"): "return its .value",
    ("uuid", "UUID"): _TEXT,
    ("pathlib", "PurePath"): _TEXT,
    ("collections", "deque"): _LIST,
    ("builtins", "set"): _SORTED,
    ("builtins", "frozenset"): _SORTED,
    ("builtins", "bytes"): _DECODE,
    ("builtins", "bytearray"): _DECODE,
    ("builtins", "memoryview"): _DECODE,
    ("builtins", "complex"): "[x.real, x.imag]",
    ("builtins", "range"): _LIST,
    ("builtins", "dict_keys"): _LIST,
    ("builtins", "dict_values"): _LIST,
    ("builtins", "dict_items"): "dict(x) or list(x)",
    ("builtins", "coroutine"): "await it",
    ("builtins", "async_generator"): "[item async for item in x]",
    ("builtins", "function"): _CALL,
    ("builtins", "builtin_function_or_method"): _CALL,
    ("builtins", "method"): _CALL,
    ("builtins", "type"): _CALL,
    ("functools", "partial"): _CALL,
    ("_io", "_IOBase"): "return what it reads",
}
# Recognized by their attributes, after all that are recognized by name.
_BY_ATTRIBUTE = {
    "model_dump": "call .model_dump() on it",
    "__dataclass_fields__": "dataclasses.asdict(x)",
    "__next__": _LIST,
}
_ANYTHING = "return a dict of the values that are needed"


def fix_for(kind: type) -> str:
    for base in bases_of(kind):
        module, name = qualified_name_of(base)
        package = module.partition(".")[0]
        fix = _BY_PACKAGE.get(package) or _BY_TYPE.get((package, name))
        if fix is not None:
            return fix
    for attribute, fix in _BY_ATTRIBUTE.items():
        if has(kind, attribute):
            return fix
    return _ANYTHING
