from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from .server import Server

README = (Path(__file__).parents[1] / "README.md").read_text()
CLAIM = re.compile(r"\s+# => (.+)$")


def test_every_example_does_what_it_says(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BELLJAR_URL", server.url)
    monkeypatch.setenv("BELLJAR_API_KEY", server.key)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    claims = [run(block, names) for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL)]
    names["bj"].tools.delete("repeat")
    assert sum(claims) == README.count("# =>")


def run(block: str, names: dict[str, Any]) -> int:
    """Runs a block, and tells how many of its lines have said rightly what comes of them."""
    lines, kept = block.splitlines(), 0
    for statement in ast.parse(block).body:
        source = "\n".join(lines[statement.lineno - 1 : statement.end_lineno])
        claim = CLAIM.search(source)
        if claim is None:
            exec(source, names)  # noqa: S102 (the examples are ours)
            continue
        assert repr(eval(source.strip(), names)) == claim[1], source  # noqa: S307
        kept += 1
    return kept
