"""A tool: a separate module, of which the host calls one function.

The module is created for each call and is not `__main__`, so a block under `if __name__ == "__main__":` does not run
and the state of a session does not change.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from inspect import unwrap
from types import CodeType, MethodType
from typing import Any

from .cell import NO_VALUE, Interpreter
from .conversions import convert_named
from .surroundings import fresh_tool, without_working_directory


def compile_tool(source: str, name: str) -> CodeType:
    return compile(source, name, "exec", 0, True)


def call(interpreter: Interpreter, module: CodeType, request: dict[str, Any]) -> Any:
    """The return value of the function, or NO_VALUE if the module has no such function."""
    with without_working_directory() if not request.get("own_modules", False) else nullcontext():
        namespace = fresh_tool().__dict__
        interpreter.execute(module, namespace)
        function = namespace.get(request["function"])
        if not callable(function):
            return NO_VALUE
        positional = list(request.get("positional", ()))
        keywords = convert_named(request.get("keywords", {}), request.get("conversions", {}), namespace)
        positional += _positional_only(function, len(positional), keywords)
        return interpreter.call(function, positional, keywords)


def _positional_only(function: Callable[..., Any], given: int, keywords: dict[str, Any]) -> list[Any]:
    """Takes from the keywords what the function accepts by position only. An omitted one before another gets the
    function's default; without a default, the call fails as Python lets it fail.
    """
    parameters = _positional_only_parameters(function)[given:]
    while parameters and parameters[-1][0] not in keywords:
        parameters.pop()
    values = []
    for name, *default in parameters:
        if name not in keywords and not default:
            break
        values.append(keywords.pop(name) if name in keywords else default[0])
    return values


def _positional_only_parameters(function: Callable[..., Any]) -> list[tuple[Any, ...]]:
    """The name of each parameter and its default, if it has one."""
    inner = unwrap(function)
    code = getattr(inner, "__code__", None)
    if not isinstance(code, CodeType):
        return []
    names = code.co_varnames[:code.co_argcount]
    defaults = inner.__defaults__ or ()
    first_default = len(names) - len(defaults)
    parameters = [
        (name,) if index < first_default else (name, defaults[index - first_default])
        for index, name in enumerate(names[:code.co_posonlyargcount])
    ]
    return parameters[1:] if isinstance(inner, MethodType) else parameters
