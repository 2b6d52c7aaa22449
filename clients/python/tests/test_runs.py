"""Runs of a model, which here is a script: each run begins at its first turn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from belljar import AsyncBelljar, Belljar, BelljarError, Confirmation, Trace

from .server import Server, running

ADD = """total = sum(map(int, open("/home/uploaded_files/numbers.txt")))
with open("total.txt", "w") as file:
    file.write(str(total))
print(total)
"""
Turns = list[dict[str, Any]]
COMPUTES: Turns = [
    {
        "expect": "numbers.txt",
        "calls": [{"name": "plan", "arguments": {"steps": ["Add up"]}}],
    },
    {"calls": [{"name": "run_python", "arguments": {"code": ADD}}]},
    {"expect": "42", "say": "The sum is 42."},
]
BOOK = '''def handle(what: str) -> str:
    """Book something.

    Args:
        what: Which.
    """
    return "booked " + what
'''
# The reply is a run too, in which it wants to book once more.
BOOKS: Turns = [{"calls": [{"name": "book", "arguments": {"what": "a table"}}]}]
CLERK = {
    "instructions": "You book what you are asked to.",
    "tools": [
        {
            "type": "runPythonCode",
            "name": "book",
            "description": "Books something for good.",
            "configuration": {"pythonCode": BOOK},
        }
    ],
}


@contextmanager
def played(turns: Turns, place: Path) -> Iterator[Server]:
    """A server whose model says this."""
    script = place / "script.json"
    script.write_text(json.dumps(turns))
    with running("--model", f"script:{script}") as server:
        yield server


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.txt"
    path.write_text("10\n32\n")
    return path


def test_a_request_in_plain_words_is_carried_out_with_code(numbers: Path, tmp_path: Path) -> None:
    with played(COMPUTES, tmp_path) as server, Belljar(server.url, server.key) as bj:
        result = bj.code_execution("Add these up", documents=[numbers], context="Be brief")
        assert (result.answer, result.complete) == ("The sum is 42.", True)
        assert (result.plan, result.rounds[0].stdout) == (["Add up"], "42\n")
        assert [file.name for file in result.uploaded_files] == ["numbers.txt"]
        assert bj.read(result.generated_files[0]) == b"42"
        assert bj.code_execution_result(result.execution_id) == result

        document = bj.documents.upload(numbers)
        again = bj.code_execution(
            "Once more", documents=[document.id], sandbox_id=result.sandbox_id, max_rounds=2
        )
        assert (again.sandbox_id, again.max_rounds) == (result.sandbox_id, 2)
        assert bj.executions.get(again.execution_id).rounds == again.rounds


def test_a_run_is_kept_as_a_trace_a_notebook_a_page_and_text(numbers: Path, tmp_path: Path) -> None:
    with played(COMPUTES, tmp_path) as server, Belljar(server.url, server.key) as bj:
        run = bj.code_execution("Add these up", documents=[str(numbers)]).execution_id
        trace = bj.executions.trace(run)
        assert (trace.run, trace.kind) == (run, "code_execution")
        assert [step["step"] for step in trace.steps] == ["asked", "asked", "ran", "asked"]
        notebook = json.loads(bj.executions.trace(run, format="ipynb"))
        assert any(ADD.strip() in "".join(cell["source"]) for cell in notebook["cells"])
        assert bj.executions.trace(run, format="html").startswith("<!doctype html>")
        assert "The sum is 42." in bj.executions.trace(run, format="text")


def test_a_tool_of_an_agent_runs_when_it_is_allowed_and_not_when_it_is_denied(
    tmp_path: Path,
) -> None:
    with played(BOOKS, tmp_path) as server, Belljar(server.url, server.key) as bj:
        agent = bj.agents.create("clerk", CLERK)
        replies: list[tuple[Confirmation, str]] = [("ALLOW", "booked a table"), ("DENY", "denied")]
        for reply, came in replies:
            asked = bj.agents.run("clerk", "Book a table", key=f"talk-{reply}")
            assert asked.answer == ""
            assert asked.actions[0]["toolConfirmation"]["toolArguments"] == {"what": "a table"}
            confirmations = {asked.actions[0]["actionId"]: reply}
            told = bj.agents.run(agent.id, cursor=asked.cursor, confirmations=confirmations)
            assert isinstance(told.trace, Trace)
            assert came in told.trace.steps[0]["tool"]["result"]
            assert told.actions[0]["actionId"] not in confirmations
            assert bj.agents.result("clerk", told.execution_id) == told


def test_without_a_model_it_is_said_what_is_missing(bj: Belljar) -> None:
    with pytest.raises(BelljarError) as raised:
        bj.code_execution("Add these up")
    assert (raised.value.code, raised.value.status) == ("model.unavailable", 424)
    with pytest.raises(BelljarError, match="no agent called 'nobody'"):
        bj.agents.run("nobody", "Hello")


def test_it_is_the_same_awaited(numbers: Path, tmp_path: Path) -> None:
    async def main(server: Server) -> None:
        async with AsyncBelljar(server.url, server.key) as abj:
            result = await abj.code_execution("Add these up", documents=[numbers])
            assert result.answer == "The sum is 42."
            assert await abj.code_execution_result(result.execution_id) == result
            assert "42" in await abj.executions.trace(result.execution_id, format="text")
            assert (await abj.executions.trace(result.execution_id)).request == "Add these up"

    with played(COMPUTES, tmp_path) as server:
        asyncio.run(main(server))
    with played([{"say": "Hello."}], tmp_path) as server:
        asyncio.run(greeted(server))


async def greeted(server: Server) -> None:
    async with AsyncBelljar(server.url, server.key) as abj:
        agent = await abj.agents.create("clerk", {"instructions": "Greet."})
        told = await abj.agents.run("clerk", "Hello?")
        assert (told.answer, told.agent_id) == ("Hello.", agent.id)
        assert await abj.agents.result(agent.id, told.execution_id) == told
