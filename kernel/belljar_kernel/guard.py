"""The guide in front of what an environment does not have: processes, and ways to install packages.

It refuses by a sentence that says what to do instead, and is no wall: code that goes around it meets the filter on
system calls, or an index that is not there, and is told no more than an errno.
"""

from __future__ import annotations

import _posixsubprocess
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from os import fsdecode
from os.path import basename
from re import compile as _pattern
from typing import Any, NoReturn

_NO_PROCESSES = (
    "processes are not allowed in environment `{}`: use Python itself (json, csv, pathlib, threading, ...) instead of "
    "a command; a function with an environment of its own (Call Function) can start programs"
)
_NO_INSTALLS = (
    "packages cannot be installed in environment `{}`: use what it has, ask for another environment, or use a "
    "function with its own requirements.txt (Call Function)"
)

_PROCESS_EVENTS = (
    "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "pty.spawn", "subprocess.Popen",
)
_INSTALLERS = ("pip", "micropip")
# An environment may have pip because a package reads requirements with it; this is where its commands begin.
_COMMANDS_OF_PIP = ("pip._internal.cli.main", "pip._internal.main")
_is_pip = _pattern(r"pip[\d.]*").fullmatch
_is_python = _pattern(r"python[\d.]*").fullmatch

_find = PathFinder.find_spec


class _Process(PermissionError):
    denied = "process"


class _Package(PermissionError):
    denied = "package"


class _NoInstaller(ModuleNotFoundError):
    denied = "package"


for _kind in (_Process, _Package, _NoInstaller):
    # Nobody has to know that the guide's errors are its own, except who reports them.
    _kind.__name__ = _kind.__qualname__ = _kind.__base__.__name__
    _kind.__module__ = "builtins"


def denied(error: BaseException) -> str | None:
    """What the guide refused, if this error is the guide's."""
    return error.denied if isinstance(error, (_Process, _Package, _NoInstaller)) else None


def install(environment: str, *, processes: bool, installs: bool) -> None:
    """Stands from here on in this process and all that are forked from it; an audit hook cannot be taken away."""
    checks: dict[str, list[Callable[..., None]]] = {}
    if not installs:
        for event, check in _install_checks(_NO_INSTALLS.format(environment)).items():
            checks[event] = [check]
    if not processes:
        refuse = _refusal(_NO_PROCESSES.format(environment))
        for event in _PROCESS_EVENTS:
            checks.setdefault(event, []).append(refuse)
        # multiprocessing starts programs by this function, which tells no hook; subprocess has it by another name.
        _posixsubprocess.fork_exec = refuse

    def watch(event: str, args: tuple[Any, ...]) -> None:
        for check in checks.get(event, ()):
            check(*args)

    sys.addaudithook(watch)


def _refusal(sentence: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any) -> NoReturn:
        raise _Process(sentence)

    return refuse


def _install_checks(sentence: str) -> dict[str, Callable[..., None]]:
    def importing(name: str, *_: Any) -> None:
        top = name.partition(".")[0]
        if top in _INSTALLERS and _find(top) is None:
            raise _NoInstaller(sentence, name=top)
        if name in _COMMANDS_OF_PIP:
            raise _Package(sentence)

    def starting(_: Any, words: list[Any], *__: Any) -> None:
        if _runs_pip(words):
            raise _Package(sentence)

    def asking_the_shell(command: bytes) -> None:
        if _runs_pip(fsdecode(command).split()):
            raise _Package(sentence)

    def bootstrapping(*_: Any) -> None:
        raise _Package(sentence)

    return {
        "import": importing,
        "subprocess.Popen": starting,
        "os.system": asking_the_shell,
        "ensurepip.bootstrap": bootstrapping,
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
