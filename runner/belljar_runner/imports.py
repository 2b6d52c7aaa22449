"""Refuses imports of packages that the operator has not listed, with a clear error.

It applies to imports by user code, so that a listed package can import whatever it needs. It is no isolation layer:
code that bypasses it gets a module of the environment, but no access outside of the sandbox.
"""

from __future__ import annotations

import builtins
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import PathFinder
from typing import Any

SETTING = "PYTHON_PACKAGES_WHITELIST_IMPORT"


class Denied(ImportError):
    """Looks like Python's own error, except to the code that reports it."""


Denied.__name__ = Denied.__qualname__ = ImportError.__name__
Denied.__module__ = "builtins"

_import = builtins.__import__
_import_module = importlib.import_module
_find_spec = PathFinder.find_spec
_frame = sys._getframe


def install(listed: Sequence[str]) -> None:
    """Active from here on in this process and its forks."""
    allowed = sys.stdlib_module_names | set(sys.builtin_module_names) | {"belljar"} | set(listed)

    def check(name: str, importer: Mapping[str, Any] | None) -> None:
        top = name.partition(".")[0]
        if top not in allowed and _is_users(importer) and not _is_local(top):
            raise Denied(f"{top} not allowed by {SETTING}", name=top)

    def guarded_import(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        if level == 0:
            # Called as a function, it does not know the importer: pandas finds its dependencies this way.
            check(name, _frame(1).f_globals if globals is None else globals)
        return _import(name, globals, locals, fromlist, level)

    def guarded_import_module(name: str, package: str | None = None) -> Any:
        if not name.startswith("."):
            check(name, _frame(1).f_globals)
        return _import_module(name, package)

    builtins.__import__ = importlib.__import__ = guarded_import
    importlib.import_module = guarded_import_module


def _is_users(importer: Mapping[str, Any] | None) -> bool:
    """Whether it is a cell, a tool, or a module that the user wrote; the import system found all packages."""
    spec = None if importer is None else importer.get("__spec__")
    return spec is None or _is_here(spec)


def _is_local(name: str) -> bool:
    """Whether an import would load the user's own module, and not a package with the same name as their folder."""
    if name in sys.modules:
        spec = getattr(sys.modules[name], "__spec__", None)
        return spec is None or _is_here(spec)
    spec = _find_spec(name)
    return spec is not None and _is_here(spec)


def _is_here(spec: Any) -> bool:
    places = [spec.origin] if isinstance(spec.origin, str) else list(spec.submodule_search_locations or ())
    here = os.getcwd() + os.sep
    return bool(places) and all(isinstance(place, str) and place.startswith(here) for place in places)
