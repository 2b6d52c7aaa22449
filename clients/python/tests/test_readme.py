from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from belljar import Belljar, Session

from .server import running

# For an agent it has ended with the first turn, which is not a plan either.
SCRIPT = """
- say: I add it up.
- calls: [{name: run_python, arguments: {code: "print(sum(map(int, open('sales.csv'))))"}}]
- say: It is 42.
"""
README = (Path(__file__).parents[1] / "README.md").read_text()
CLAIM = re.compile(r"\s+# => (.+)$")


def test_every_example_does_what_it_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("script.yaml").write_text(SCRIPT)
    names: dict[str, Any] = {}
    with running("--model", f"script:{tmp_path / 'script.yaml'}") as server:
        monkeypatch.setenv("BELLJAR_URL", server.url)
        monkeypatch.setenv("BELLJAR_API_KEY", server.key)
        blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
        claims = [run(block, names) for block in blocks]
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


def test_every_method_is_listed_with_its_arguments() -> None:
    with Belljar("http://127.0.0.1:9", "bj_x") as bj:
        nouns = {f"bj.{noun}": type(kept) for noun, kept in vars(bj).items() if noun[0] != "_"}
    methods = {"bj": Belljar, "session": Session, **nouns}
    lines = [line for prefix, kind in methods.items() for line in listed(prefix, kind)]
    assert "\n".join(lines) in README


def listed(prefix: str, kind: type) -> Iterator[str]:
    for name, method in vars(kind).items():
        if name[0] != "_" and inspect.isfunction(method):
            parameters = list(inspect.signature(method).parameters.values())[1:]
            yield f"{prefix}.{name}({', '.join(written(parameters))})"


def written(parameters: list[inspect.Parameter]) -> Iterator[str]:
    by_name = False
    for parameter in parameters:
        if parameter.kind == parameter.KEYWORD_ONLY and not by_name:
            by_name = True
            yield "*"
        if parameter.kind == parameter.VAR_KEYWORD:
            yield f"**{parameter.name}"
        else:
            yield parameter.name if parameter.default is parameter.empty else f"{parameter.name}="
