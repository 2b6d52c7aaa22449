"""The environment of user code: the `__main__` of a fresh interpreter, and two builtins adapted to the sandbox."""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import BuiltinImporter
from types import ModuleType

from .signals import uninterrupted

if sys.version_info >= (3, 14):
    from multiprocessing import context as _processes

TOOL_MODULE = "belljar_tool"

_builtin_input = builtins.input
_environ = os.environ
_variables: dict[str, str] = {}
# Written when the environment was built; matplotlib takes it only from a directory that it can write to.
_FONT_LIST = "/opt/env/etc/matplotlib"
_FONT_LIST_PLACE = os.path.expanduser("~/.cache/matplotlib")
_NO_INPUT = "this sandbox has no interactive input; put the value into the code instead"


def fresh_main() -> ModuleType:
    """As in the interactive interpreter: no `__file__` and no `__spec__`, which multiprocessing would follow."""
    main = ModuleType("__main__")
    main.__loader__ = BuiltinImporter
    main.__builtins__ = builtins
    sys.modules["__main__"] = main
    return main


def fresh_tool() -> ModuleType:
    """The module of a tool, registered so that dataclasses, pickle and forked processes find what it defines."""
    tool = ModuleType(TOOL_MODULE)
    tool.__builtins__ = builtins
    sys.modules[TOOL_MODULE] = tool
    return tool


@contextmanager
def without_working_directory() -> Iterator[None]:
    """A tool imports only what its author expected: files of a call or a session belong to the caller."""
    before = list(sys.path)
    working = {"", ".", os.getcwd()}
    sys.path[:] = [place for place in before if place not in working]
    try:
        yield
    finally:
        sys.path[:] = before


def forget_tool() -> None:
    sys.modules.pop(TOOL_MODULE, None)


def set_up(display: Callable[..., None]) -> None:
    sys.argv = [""]
    sys.orig_argv = [sys.executable]
    # Modules that the user writes into the working directory can be imported, wherever that moves.
    sys.path.insert(0, "")
    builtins.display = display
    builtins.input = input
    _fork_by_default()


def copy_font_list() -> None:
    """Puts the environment's font list where matplotlib looks for it; otherwise matplotlib would build its own."""
    if "matplotlib" in sys.modules or not os.path.isdir(_FONT_LIST):
        return
    os.makedirs(_FONT_LIST_PLACE, exist_ok=True)
    for name in os.listdir(_FONT_LIST):
        with open(f"{_FONT_LIST}/{name}", "rb") as made, open(f"{_FONT_LIST_PLACE}/{name}", "wb") as copy:
            copy.write(made.read())


def input(prompt: object = "", /) -> str:
    """Read a line from standard input, which in this sandbox is empty unless the code replaces sys.stdin."""
    try:
        return _builtin_input(prompt)
    except EOFError:
        raise EOFError(f"input() has nothing to read: {_NO_INPUT}") from None


def _fork_by_default() -> None:
    """Since Python 3.14 multiprocessing prefers a fork server, which cannot find functions defined in a cell.

    Only the default changes; `set_start_method` still works, once, as in a fresh interpreter.
    """
    if sys.version_info >= (3, 14):
        _processes._default_context._default_context = _processes._concrete_contexts["fork"]


@contextmanager
def as_script(main: ModuleType, argv: list[str], directory: str | None) -> Iterator[None]:
    """For one run, sets what `python script.py arguments` would set, in that directory."""
    if directory is not None:
        os.chdir(directory)  # For good, as when the script does it.
    path = os.path.abspath(argv[0]) if argv else ""
    old_argv, sys.argv = sys.argv, list(argv)
    main.__file__ = path
    sys.path.insert(0, os.path.dirname(path))
    inserted = sys.path[0]
    try:
        yield
    finally:
        sys.argv = old_argv
        main.__dict__.pop("__file__", None)
        if inserted in sys.path:
            sys.path.remove(inserted)


def set_variables(variables: dict[str, str]) -> None:
    """Sets environment variables until the next call. Setting the same ones again costs nothing."""
    global _variables
    if variables == _variables:
        return
    for name in _variables.keys() - variables.keys():
        _environ.pop(name, None)
    _environ.update(variables)
    _variables = variables


@contextmanager
def with_variables(variables: dict[str, str]) -> Iterator[None]:
    """Sets environment variables for one call, then restores the previous values."""
    before = {name: _environ.get(name) for name in variables}
    try:
        _environ.update(variables)
        yield
    finally:
        uninterrupted(_put_back, before)


def _put_back(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            _environ.pop(name, None)
        else:
            _environ[name] = value
