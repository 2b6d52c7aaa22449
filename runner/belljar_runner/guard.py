"""Explains what an environment lacks: processes, and ways to install packages other than the host's.

It raises an error that says what to do instead. It is no isolation layer: code that bypasses it meets the seccomp
filter or a missing index, and gets only an errno.
"""

from __future__ import annotations

import _posixsubprocess
import sys
from collections.abc import Callable
from os import fsdecode
from os.path import basename
from re import compile as _pattern
from types import ModuleType
from typing import Any, NoReturn

from . import imports, network
from .after_import import after_import

_NO_PROCESSES = (
    "processes are not allowed in environment `{}`: use Python itself (json, csv, pathlib, threading, ...) instead of "
    "a command; a function with its own environment (Call Function) can start programs"
)
_NO_INSTALLS = (
    "packages cannot be installed in environment `{}`: use what it has, ask for another environment, or use a "
    "function with its own requirements.txt (Call Function)"
)
_ASK_THE_HOST = (
    "code in a sandbox installs nothing by itself: write %pip install NAME in a cell, or belljar.install(\"NAME\")"
)

_PROCESS_EVENTS = (
    "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "pty.spawn", "subprocess.Popen",
)
_INSTALLERS = ("pip", "micropip")
# An environment may have pip because a package parses requirements with it; pip's commands start here.
_COMMANDS_OF_PIP = ("pip._internal.cli.main", "pip._internal.main")
_is_pip = _pattern(r"pip[\d.]*").fullmatch
_is_python = _pattern(r"python[\d.]*").fullmatch


class _Process(PermissionError):
    denied = "process"


class Package(PermissionError):
    denied = "package"

    def __init__(self, sentence: str, hint: str | None = None) -> None:
        super().__init__(sentence)
        self.hint = hint


class NotInstalled(RuntimeError):
    """The package may be installed, but the installation failed."""

    denied = "install"

    def __init__(self, sentence: str, hint: str) -> None:
        super().__init__(sentence)
        self.hint = hint


for _kind in (_Process, Package, NotInstalled):
    # These errors look like Python's own, except to the code that reports them.
    _kind.__name__ = _kind.__qualname__ = _kind.__base__.__name__
    _kind.__module__ = "builtins"


# The text where the environment cannot install packages at all.
_no_installs: str | None = None


def denied(error: BaseException) -> str | None:
    """What the environment lacks, if that made the code fail."""
    if isinstance(error, (_Process, Package, NotInstalled)):
        return error.denied
    if isinstance(error, imports.Denied):
        return "import"
    if network.is_denied(error):
        return "network"
    return "package" if _misses_installer(error) else None


def hint(error: BaseException) -> str | None:
    """What to do, unless the host knows better."""
    if isinstance(error, (Package, NotInstalled)):
        return error.hint
    return _ASK_THE_HOST if _no_installs is None and _misses_installer(error) else None


def _misses_installer(error: BaseException) -> bool:
    return type(error) is ModuleNotFoundError and error.name in _INSTALLERS


def check_installs() -> None:
    if _no_installs is not None:
        raise Package(_no_installs)


def install(environment: str, *, processes: bool, installs: bool) -> None:
    """Active from here on in this process and its forks."""
    global _no_installs
    _no_installs = None if installs else _NO_INSTALLS.format(environment)
    refuse = _refusal(Package, _ASK_THE_HOST, _ASK_THE_HOST) if installs else _refusal(Package, _no_installs)
    if not processes:
        _watch(_refusal(_Process, _NO_PROCESSES.format(environment)), _install_checks(refuse))
    else:
        # No audit hook here: it would run for every `id()` and `open`, and an installing command reports by itself that
        # it cannot.
        after_import("ensurepip", _without_bootstrap(refuse))


def _watch(refuse_process: Callable[..., NoReturn], checks: dict[str, Callable[..., None]]) -> None:
    all_checks = {event: [check] for event, check in checks.items()}
    for event in _PROCESS_EVENTS:
        all_checks.setdefault(event, []).append(refuse_process)
    # multiprocessing starts programs with this function, which has no audit event; subprocess imports it under another
    # name.
    _posixsubprocess.fork_exec = refuse_process
    of_event = all_checks.get

    def watch(event: str, args: tuple[Any, ...]) -> None:
        for check in of_event(event, ()):
            check(*args)

    sys.addaudithook(watch)


def _refusal(kind: type[PermissionError], *words: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise kind(*words)

    return refuse


def _without_bootstrap(refuse: Callable[..., NoReturn]) -> Callable[[ModuleType], None]:
    def patch(ensurepip: ModuleType) -> None:
        ensurepip.bootstrap = ensurepip._bootstrap = refuse

    return patch


def _install_checks(refuse: Callable[..., NoReturn]) -> dict[str, Callable[..., None]]:
    def importing(name: str, *_: Any) -> None:
        if name in _COMMANDS_OF_PIP:
            refuse()

    def starting(_: Any, words: list[Any], *__: Any) -> None:
        if _runs_pip(words):
            refuse()

    def asking_the_shell(command: bytes) -> None:
        if _runs_pip(fsdecode(command).split()):
            refuse()

    return {
        "import": importing,
        "subprocess.Popen": starting,
        "os.system": asking_the_shell,
        "ensurepip.bootstrap": refuse,
    }


def _runs_pip(command: list[Any]) -> bool:
    try:
        words = [fsdecode(word) for word in command]
    except TypeError:
        return False  # Python will say what is wrong with them
    if words[1:2] == ["-c"] and basename(words[0]) == "sh" and len(words) > 2:
        words = words[2].split()
    if not words:
        return False
    program = basename(words[0])
    return bool(_is_pip(program) or _is_python(program) and words[1:3] == ["-m", "pip"])
