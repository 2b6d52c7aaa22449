"""Packages for this session: the request to the host, and the path where Python finds them afterwards.

The host decides, resolves versions and downloads; this module only asks. It asks during a cell, on the channel that
delivers cells, so only the thread that runs the cell may ask.
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
# The host always selects the newest versions that are compatible with the environment.
_UPGRADE = ("-U", "--upgrade")


def set_up(ask_host: Callable[[list[str]], dict[str, Any]]) -> None:
    """Makes `import belljar` work."""
    global ask
    ask = ask_host
    module = ModuleType("belljar", "What code can ask of the sandbox that it runs in.")
    module.install, module.pip = install, pip
    sys.modules[module.__name__] = module


def install(*requirements: str, quiet: bool = False) -> None:
    """Install packages from the index into this session, such as `belljar.install("six", "idna>=3")`.

    They can be imported from the next statement on, in this session only. Modules that are already imported do not
    change.
    """
    for requirement in requirements:
        if not isinstance(requirement, str):
            raise TypeError(f"package names must be strings, such as belljar.install(\"six\"); got {requirement!r:.80}")
    guard.check_installs()
    if ask is None:
        raise guard.NotInstalled("packages can be installed only by the main process of a session", "install them in a cell")
    answer = ask(list(requirements))
    if answer["op"] != "installed":
        kind = guard.Package if answer["denied"] else guard.NotInstalled
        raise kind(answer["message"], answer["hint"])
    if answer["path"] is not None:
        sys.path.append(answer["path"])
    importlib.invalidate_caches()
    if not quiet:
        _print_installed(answer["packages"])


def pip(line: str) -> None:
    """Does what `pip install` would do with these arguments, as far as it is supported."""
    words = split(line, comments=True)
    requirements = [word for word in words if not word.startswith("-")]
    for option in words:
        if option.startswith("-") and option not in _QUIET + _UPGRADE:
            raise guard.NotInstalled(
                f"the option {option} of pip cannot be used here",
                "use names of packages in the index, such as %pip install six; only -q and -U are supported",
            )
    install(*requirements, quiet=any(option in words for option in _QUIET))


def _print_installed(packages: list[list[str]]) -> None:
    for name, version in packages:
        print(f"installed {name} {version}")
    if not packages:
        print("all requested packages are already installed")
