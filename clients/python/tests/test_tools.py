from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from belljar import (
    ApprovalPending,
    AsyncBelljar,
    Belljar,
    BelljarError,
    ExecutionError,
    Principal,
    Tool,
)

from .server import Server

REPEAT = '''def handle(text: str, times: int = 2) -> str:
    """Repeat a text.

    Args:
        text: What to repeat.
        times: How often.
    """
    if times < 1:
        raise ValueError("times must be at least 1.")
    return " ".join([text] * times)


def test():
    assert handle("ho", 3) == "ho ho ho"
'''
SPECIFICATION = "models:\n  orchestration: auto\n"
OUTSIDE = 3


def factorial(number: int) -> int:
    """Multiply all numbers up to this one.

    Args:
        number: The last of them.
    """
    import math

    return number * factorial(number - 1) if number > 1 else math.factorial(1)


def needs_more(number: int) -> int:
    """Add something from outside.

    Args:
        number: What to add to.
    """
    return number + OUTSIDE


@pytest.fixture
def repeat(bj: Belljar) -> Iterator[Tool]:
    tool = bj.tools.create(REPEAT, name="repeat")
    yield tool
    bj.tools.delete(tool.id)


def test_source_becomes_a_tool_that_is_called_by_its_name(bj: Belljar, repeat: Tool) -> None:
    assert repeat.description == "Python tool repeat"
    assert repeat.input_schema["required"] == ["text"]
    assert bj.tools.call("repeat", text="ho", times=3) == "ho ho ho"
    assert bj.tools.call(repeat.id, text="hey") == "hey hey"
    assert bj.tools.get("repeat") == repeat
    assert repeat.id in [tool.id for tool in bj.tools.list()]
    assert bj.tools.test("repeat").ok


def test_a_call_that_fails_raises_and_its_record_can_be_had_instead(
    bj: Belljar, repeat: Tool
) -> None:
    with pytest.raises(ExecutionError, match=r"times must be at least 1\.") as raised:
        bj.tools.call("repeat", text="ho", times=0)
    assert raised.value.code == "python.ValueError"
    assert bj.tools.run(repeat.name, {"text": "ho", "times": 0}).status == "failed"


def test_arguments_that_do_not_fit_are_refused(bj: Belljar, repeat: Tool) -> None:
    with pytest.raises(BelljarError) as raised:
        bj.tools.call(repeat.name, text=1)
    assert raised.value.code == "args.invalid"


def test_a_function_becomes_a_tool(bj: Belljar) -> None:
    tool = bj.tools.create(factorial)
    assert tool.name == "factorial"
    assert bj.tools.call("factorial", number=5) == 120
    bj.tools.delete("factorial")


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def test_a_docstring_is_not_the_description_which_has_rules_of_its_own(bj: Belljar) -> None:
    assert bj.tools.create(add, name="adder").description == "Python tool adder"
    bj.tools.delete("adder")
    described = bj.tools.create(add, name="adder", description="Add two numbers.")
    assert described.description == "Add two numbers."
    bj.tools.delete("adder")


def test_arguments_are_given_by_name_or_as_a_mapping(bj: Belljar, repeat: Tool) -> None:
    arguments = {"text": "ho", "times": 3}
    assert bj.tools.call("repeat", arguments) == "ho ho ho"
    assert bj.tools.call("repeat", text="ho", times=3) == "ho ho ho"
    assert bj.tools.run("repeat", arguments).value == "ho ho ho"
    assert bj.tools.run("repeat", text="ho", times=3).value == "ho ho ho"
    assert bj.tools.call(repeat.name, {"text": "ho"}, times=3) == "ho ho ho"
    limited = bj.tools.run(repeat.name, text="ho", limits={"wall_ms": 5000})
    assert limited.limits.wall_ms == 5000


def test_a_function_that_needs_more_than_itself_is_refused_here() -> None:
    with Belljar("http://127.0.0.1:9", "bj_x") as bj:
        with pytest.raises(TypeError, match="uses OUTSIDE from outside"):
            bj.tools.create(needs_more)
        with pytest.raises(TypeError, match="plain function"):
            bj.tools.create(lambda number: number)


def test_files_become_tools(bj: Belljar, tmp_path: Path) -> None:
    (tmp_path / "twice.py").write_text(REPEAT)
    fields = [{"name": "text", "field_type": "STRING", "required": True}]
    described = {
        "name": "shout",
        "description": "Say it louder than before.",
        "tool_type": "code_runner",
        "configuration": {
            "type": "CodeRunner",
            "runtime": "python",
            "input_schema": fields,
            "output_schema": fields,
            "code": "def run(input):\n    return {'text': input['text'].upper()}\n",
        },
    }
    (tmp_path / "shout.json").write_text(json.dumps(described))
    assert bj.tools.create(tmp_path / "twice.py").name == "twice"
    assert bj.tools.create(tmp_path / "shout.json").entry == "run"
    assert bj.tools.call("shout", text="ho") == {"text": "HO"}
    assert bj.tools.validate(described, name="other").valid
    bj.tools.delete("twice")
    bj.tools.delete("shout")


def test_a_source_with_errors_is_told_all_of_them_with_their_lines(bj: Belljar) -> None:
    wrong = 'def handle(a, b):\n    """Do nothing useful."""\n    return a\n'
    validation = bj.tools.validate(wrong, name="wrong")
    assert not validation.valid
    assert {error.line for error in validation.errors} == {1}
    with pytest.raises(BelljarError, match="line 1: ") as raised:
        bj.tools.create(wrong, name="wrong")
    assert raised.value.status == 422
    assert list(raised.value.errors) == validation.errors
    assert bj.tools.validate(REPEAT, name="right").errors == []


def test_a_tool_can_be_changed(bj: Belljar, repeat: Tool) -> None:
    dashes = REPEAT.replace('" ".join', '"-".join')
    changed = bj.tools.update("repeat", source=dashes, description="Repeat it with dashes.")
    assert (changed.id, changed.name) == (repeat.id, "repeat")
    assert changed.description == "Repeat it with dashes."
    assert bj.tools.call("repeat", text="ho") == "ho-ho"


def test_a_tool_that_is_not_there_is_said_to_be_so(bj: Belljar) -> None:
    with pytest.raises(BelljarError, match="no tool called 'nothing'") as raised:
        bj.tools.call("nothing")
    assert raised.value.code == "object.not_found"


def test_an_agent_has_tools(bj: Belljar, repeat: Tool) -> None:
    agent = bj.agents.create("clerk", SPECIFICATION)
    assert agent.specification == SPECIFICATION
    assert bj.agents.attach(agent.id, repeat.id).tool_name == "repeat"
    assert bj.agents.set_approval(agent.id, repeat.id, "deny").approval_action == "deny"
    assert [tool.tool_id for tool in bj.agents.get(agent.id).tools] == [repeat.id]
    with pytest.raises(BelljarError) as raised:
        bj.tools.delete("repeat")
    assert raised.value.code == "tool.in_use"
    bj.agents.detach(agent.id, repeat.id)
    replaced = bj.agents.replace(agent.id, {"models": {"orchestration": "auto"}}, run_as="caller")
    assert (replaced.name, replaced.format, replaced.run_as) == ("clerk", "json", "caller")
    assert agent.id in [listed.id for listed in bj.agents.list()]
    bj.agents.delete(agent.id)


@pytest.fixture
def worker(bj: Belljar, repeat: Tool) -> Iterator[Principal]:
    """Somebody who may run code and call the tool, if a person agrees."""
    bj.tools.update("repeat", approval_action="review")
    worker = bj.principals.create("worker")
    bj.grants.create(worker.id, "USAGE", "workspace", repeat.deployment_id)
    bj.grants.create(worker.id, "USAGE", "tool", repeat.id)
    yield worker
    bj.principals.delete(worker.id)


def test_a_call_waits_for_a_person_who_allows_it(
    bj: Belljar, server: Server, worker: Principal
) -> None:
    key = bj.keys.create("of the worker", principal=worker.id)
    with Belljar(server.url, key.secret) as theirs:
        with pytest.raises(ApprovalPending) as raised:
            theirs.tools.call("repeat", text="ho")
        pending = raised.value
        with pytest.raises(BelljarError):
            theirs.approvals.allow(pending.approval_id)
        with pytest.raises(TimeoutError):
            theirs.approvals.wait(pending.approval_id, timeout=0)
        asked = next(bj.approvals.list(state="pending"))
        assert (asked.id, asked.arguments) == (pending.approval_id, {"text": "ho"})
        bj.approvals.allow(asked.id, reason="go on")
        assert theirs.approvals.wait(asked.id).state in ("allowed", "used")
        assert theirs.executions.wait(pending.execution.id).value == "ho ho"


def test_a_call_that_a_person_denies_does_not_run(
    bj: Belljar, server: Server, worker: Principal
) -> None:
    key = bj.keys.create("of the worker", principal=worker.id)

    async def run() -> None:
        async with AsyncBelljar(server.url, key.secret) as theirs:
            with pytest.raises(ApprovalPending) as raised:
                await theirs.tools.call("repeat", text="ho")
            waiting = asyncio.create_task(theirs.approvals.wait(raised.value.approval_id))
            await asyncio.to_thread(bj.approvals.deny, raised.value.approval_id, reason="not now")
            assert (await waiting).reason == "not now"
            assert (await theirs.executions.wait(raised.value.execution.id)).status == "denied"

    asyncio.run(run())
