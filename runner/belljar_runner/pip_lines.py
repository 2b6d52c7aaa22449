"""Notebook commands that install packages: `%pip install x`, `!pip install x`, `pip install x`, and the same
behind `uv` or `python -m`.

The compiler finds them: only a line that it rejects is examined, so that no text inside a string is changed.
"""

from __future__ import annotations

from re import compile as _pattern

_lines = _pattern(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+").findall
_BEFORE = r"(?:uv\s+|(?:python3?|\{\s*sys\.executable\s*\})\s+-m\s+)?"
_install = _pattern(rf"(\s*)[%!]?\s*{_BEFORE}pip3?\s+install\s([^\r\n]*?)(\s*)").fullmatch
_CALL = "{}__import__('belljar').pip({!r}){}"


def without(source: str, number: int | None) -> str | None:
    """The source with that line replaced by a call; None if the line is no such command."""
    lines = _lines(source)
    if number is None or not 0 < number <= len(lines):
        return None
    found = _install(lines[number - 1])
    if found is None:
        return None
    lines[number - 1] = _CALL.format(*found.groups())
    return "".join(lines)
