"""Packages for this session: what code asks the host for, and where Python finds them from then on.

The host decides, chooses versions and fetches; here is only the question. It is asked in the middle of a cell, on the
channel that cells come by, so nobody but the thread that runs the cell may ask.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from shlex import split
from types import ModuleType
from typing import Any

from . import guard

ask: Callable[[list[str]], dict[str, Any]] | None = None

_QUIET = ("-q", "--quiet")
# The newest versions that go together with what is there are chosen anyway.
_UPGRADE = ("-U", "--upgrade")


def furnish(ask_host: Callable[[list[str]], dict[str, Any]]) -> None:
    """Makes `import belljar` work."""
    global ask
    ask = ask_host
    module = ModuleType("belljar", "What code can ask of the sandbox that it runs in.")
    module.install, module.pip = install, pip
    sys.modules[module.__name__] = module


def install(*requirements: str, quiet: bool = False) -> None:
    """Add packages of the index to this session, such as `belljar.install("six", "idna>=3")`.

    They can be imported from the next statement on, in this session only. A module that was imported before stays
    the one that it is.
    """
    for requirement in requirements:
        if not isinstance(requirement, str):
            raise TypeError(f"a package is named by text, as in belljar.install(\"six\"), not by {requirement!r:.80}")
    guard.check_installs()
    if ask is None:
        raise guard.NotInstalled("packages are not installed from here", "install them in a cell, not in a process")
    answer = ask(list(requirements))
    if answer["op"] != "installed":
        kind = guard.Package if answer["denied"] else guard.NotInstalled
        raise kind(answer["message"], answer["hint"])
    if answer["path"] is not None:
        sys.path.append(answer["path"])
    importlib.invalidate_caches()
    if not quiet:
        _tell(answer["packages"])


def pip(line: str) -> None:
    """What `pip install` would do with these words, as far as it is done here."""
    words = split(line, comments=True)
    requirements = [word for word in words if not word.startswith("-")]
    for option in words:
        if option.startswith("-") and option not in _QUIET + _UPGRADE:
            raise guard.NotInstalled(
                f"the option {option} of pip cannot be used here",
                "name packages of the index, such as %pip install six; only -q and -U may stand before them",
            )
    install(*requirements, quiet=any(option in words for option in _QUIET))


def _tell(packages: list[list[str]]) -> None:
    for name, version in packages:
        print(f"installed {name} {version}")
    if not packages:
        print("nothing to install: all of it is there")
