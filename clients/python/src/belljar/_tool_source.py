"""The sources of a tool: a function, Python source, a file, or its definition.

This module turns each into the JSON of a tool. Nothing is run, and a function that uses names
from outside its body is refused, because the sandbox would not have them.
"""

from __future__ import annotations

import builtins
import inspect
import json
import re
import symtable
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ._models import ApprovalAction
from ._plan import body

ToolSource = str | Path | Mapping[str, Any] | Callable[..., Any]


def definition(
    source: ToolSource,
    *,
    name: str | None = None,
    description: str | None = None,
    environment: str | None = None,
    approval_action: ApprovalAction | None = None,
) -> dict[str, Any]:
    fields = body(
        name=name,
        description=description,
        environment=environment,
        approval_action=approval_action,
    )
    tool = {**_read(source), **fields}
    if tool.get("type") == "runPythonCode" and "name" in tool:
        # The default of the server for a Python file without a description.
        tool.setdefault("description", f"Python tool {tool['name']}")
    return tool


def _read(source: ToolSource) -> dict[str, Any]:
    if isinstance(source, Mapping):
        return dict(source)
    if isinstance(source, str):
        return _python(source)
    if not isinstance(source, Path):
        return _function(source)
    if source.suffix == ".json":
        return dict(json.loads(source.read_text("utf-8")))
    return {**_python(source.read_text("utf-8")), "name": source.stem}


def _python(code: str) -> dict[str, Any]:
    return {"type": "runPythonCode", "configuration": {"pythonCode": code}}


def _function(function: Callable[..., Any]) -> dict[str, Any]:
    name = function.__name__
    code = textwrap.dedent(inspect.getsource(function))
    if not re.match(rf"(async )?def {re.escape(name)}\(", code):
        raise TypeError(f"{name} must be a plain function, without decorators")
    used = _used(code)
    outside = sorted(used - {name} - set(dir(builtins)))
    if outside:
        raise TypeError(
            f"{name} uses {', '.join(outside)} from outside its body, which the sandbox does not "
            "have: import or define it inside the function, or pass the whole source"
        )
    code = re.sub(rf"\b{re.escape(name)}\(", "handle(", code, count=1)
    if name in used:
        code += f"\n\n{name} = handle\n"
    return {**_python(code), "name": name}


def _used(code: str) -> set[str]:
    """Names that the code takes from its module, in annotations and defaults too."""
    names: set[str] = set()
    tables = [symtable.symtable(code, "<tool>", "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        symbols = [symbol for symbol in table.get_symbols() if symbol.is_referenced()]
        names |= {symbol.get_name() for symbol in symbols if symbol.is_global()}
    return names
