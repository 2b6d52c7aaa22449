"""Names and attributes of a type, whatever its metaclass says: a class must not be able to break a report."""

from __future__ import annotations

from .surroundings import TOOL_MODULE

_UNSAID = ("builtins", "__main__", TOOL_MODULE)
# Enough for any honest name; `type()` makes classes with names of any length.
_NAME_CHARS = 200

_module_of = type.__dict__["__module__"].__get__
_qualname_of = type.__dict__["__qualname__"].__get__
_attributes_of = type.__dict__["__dict__"].__get__
_exact_str = str.__str__

bases_of = type.__dict__["__mro__"].__get__


def has(kind: type, attribute: str) -> bool:
    """Whether the class or one of its bases defines this."""
    return any(attribute in _attributes_of(base) for base in bases_of(kind))


def qualified_name_of(kind: type) -> tuple[str, str]:
    """The module of a class and its name in it."""
    module = _module_of(kind)
    return (_exact_str(module) if issubclass(type(module), str) else "builtins"), _exact_str(_qualname_of(kind))


def type_name(kind: type) -> str:
    """With its module, unless that is builtins or the user's own."""
    module, name = qualified_name_of(kind)
    full = name if module in _UNSAID else f"{module}.{name}"
    return full if len(full) <= _NAME_CHARS else full[:_NAME_CHARS] + "..."
