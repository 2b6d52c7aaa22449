"""Generate the synchronous client (`_sync`) from the asynchronous one (`_async`).

Without arguments it writes the files; with `--check` it only compares, and fails if one differs.
Code that waits differently in the two clients is in `_io.py` and `_opening.py`, side by side.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
import tokenize
from pathlib import Path

PACKAGE = Path(__file__).parent / "src" / "belljar"
HEADER = "# Generated from ../_async/{name} by generate_sync.py. Do not edit.\n"

# Names whose synchronous form is not the name without its `Async` or `async_`.
NAMES = {
    "ASYNC_STOPPED": "STOPPED",
    "AsyncClient": "Client",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "aclose": "close",
    "aiter_bytes": "iter_bytes",
    "aread": "read",
    "asynccontextmanager": "contextmanager",
}
KEYWORDS = ("async", "await")


def synchronous(source: str) -> str:
    """The source of one asynchronous module, rewritten token by token."""
    # Each line from its first changed column on, so that all other columns stay as they were read.
    lines = source.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for token in reversed(tokens):
        (first, start), (last, end) = token.start, token.end
        if token.type == tokenize.STRING:
            text = _synchronous_text(token.string)
        elif token.type == tokenize.NAME and token.string in KEYWORDS:
            text, end = "", end + 1
        elif token.type == tokenize.NAME:
            text = _synchronous_name(token.string)
        else:
            continue
        replaced = lines[first - 1][:start] + text + lines[last - 1][end:]
        lines[first - 1 : last] = replaced.splitlines(keepends=True)
    return _with_sorted_imports("".join(lines))


def _synchronous_name(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    if re.match("Async[A-Z]", name):
        return name.removeprefix("Async")
    return name.removeprefix("async_")


def _synchronous_text(text: str) -> str:
    """Docstrings name classes and `async with`; the rest of them holds for both clients."""
    text = text.replace("async with", "with").replace("async for", "for")
    return re.sub(r"\bAsync([A-Z])", r"\1", text)


def _with_sorted_imports(source: str) -> str:
    def in_order(found: re.Match[str]) -> str:
        names = sorted(found[2].split(", "), key=lambda name: (not name[0].isupper(), name))
        return found[1] + ", ".join(names)

    return re.sub(r"^(from \S+ import )(\w+(?:, \w+)+)$", in_order, source, flags=re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    check = parser.parse_args().check
    generated = {
        module.name: HEADER.format(name=module.name) + synchronous(module.read_text())
        for module in sorted((PACKAGE / "_async").glob("*.py"))
    }
    target = PACKAGE / "_sync"
    if not check:
        for name, text in generated.items():
            (target / name).write_text(text)
        return 0
    present = {module.name: module.read_text() for module in target.glob("*.py")}
    names = sorted(generated.keys() | present.keys())
    stale = [name for name in names if generated.get(name) != present.get(name)]
    if stale:
        files = ", ".join(f"_sync/{name}" for name in stale)
        command = "python3 clients/python/generate_sync.py"
        sys.stderr.write(f"{files}: not what _async generates; run `{command}`\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
