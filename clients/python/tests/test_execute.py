from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from belljar import AsyncBelljar, Belljar, BelljarError, ExecutionError, Unreachable

from .server import Server
from .waiting import until_async


def test_a_run_tells_its_value_and_what_it_wrote(bj: Belljar) -> None:
    run = bj.execute("import sys\nprint('out')\nprint('err', file=sys.stderr)\n{'a': [1, 2]}")
    assert run.ok
    assert run.value == {"a": [1, 2]}
    assert run.text == "{'a': [1, 2]}"
    assert (run.stdout, run.stderr) == ("out\n", "err\n")
    assert run.created_at.tzinfo is not None


def test_code_that_fails_is_an_answer_and_an_exception_only_when_asked_for(bj: Belljar) -> None:
    run = bj.execute("1 / 0")
    assert (run.status, run.ok) == ("failed", False)
    assert run.error is not None
    assert run.error.type == "ZeroDivisionError"
    with pytest.raises(ExecutionError, match=r"line 1, in <module>\n    1 / 0") as raised:
        run.raise_for_error()
    assert raised.value.code == "python.ZeroDivisionError"
    assert raised.value.execution is run


def test_a_run_that_succeeds_is_itself_when_asked_for_its_error(bj: Belljar) -> None:
    assert bj.execute("6 * 7").raise_for_error().value == 42


def test_a_run_over_its_time_is_stopped_and_says_so(bj: Belljar) -> None:
    run = bj.execute("while True: pass", limits={"wall_ms": 300})
    assert run.status == "timed_out"
    assert run.error is not None
    assert run.error.code == "time.exceeded"


def test_a_refusal_names_the_field_and_nothing_runs(bj: Belljar) -> None:
    before = next(bj.executions.list()).id
    with pytest.raises(BelljarError) as raised:
        bj.execute("print(1)", entry="cell", argv=["a"])
    refused = raised.value
    assert (refused.code, refused.status) == ("args.invalid", 400)
    assert [error.path for error in refused.errors] == ["/argv"]
    assert refused.request_id
    assert next(bj.executions.list()).id == before


def test_a_script_has_arguments(bj: Belljar) -> None:
    run = bj.execute("import sys\nprint(sys.argv)", entry="script", argv=["a.py", "b"])
    assert run.stdout == "['a.py', 'b']\n"


def test_a_wrong_key_is_refused(server: Server) -> None:
    with Belljar(server.url, server.key[:-4] + "AAAA") as bj, pytest.raises(BelljarError) as raised:
        bj.execute("1")
    assert (raised.value.code, raised.value.status) == ("auth.missing", 401)


def test_no_key_is_noticed_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BELLJAR_API_KEY", raising=False)
    with pytest.raises(BelljarError, match="BELLJAR_API_KEY"):
        Belljar()


def test_address_and_key_are_taken_from_the_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BELLJAR_URL", server.url)
    monkeypatch.setenv("BELLJAR_API_KEY", server.key)
    with Belljar() as bj:
        assert bj.execute("1 + 1").value == 2


def test_a_server_that_is_not_there_is_said_to_be_so() -> None:
    with Belljar("http://127.0.0.1:9", "bj_x") as bj, pytest.raises(Unreachable) as raised:
        bj.execute("1")
    assert (raised.value.code, raised.value.status) == ("server.unreachable", None)
    assert "no response from http://127.0.0.1:9: " in str(raised.value)


def test_a_proxy_of_the_environment_never_sees_the_key(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with Belljar(server.url, server.key) as bj:
        assert bj.execute("1 + 1").value == 2


def test_files_go_in_and_come_out(bj: Belljar, tmp_path: Path) -> None:
    local = tmp_path / "sales.csv"
    local.write_text("1,2\n")
    code = "open('total é.txt', 'w').write(open('sales.csv').read() + open('b.txt').read())"
    run = bj.execute(code, files=[local, {"name": "b.txt", "text": "3"}]).raise_for_error()
    made = run.files[0]
    assert (made.name, made.mime, made.size) == ("total é.txt", "text/plain", 5)
    assert bj.read(made) == b"1,2\n3"
    assert bj.download(made, tmp_path / "here.txt").read_bytes() == b"1,2\n3"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here.txt", "sales.csv"]


def test_runs_are_found_again_one_page_after_the_other(
    bj: Belljar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("belljar._plan.PAGE_ITEMS", 2)
    with bj.session() as session:
        ran = [session.run(f"{number}").id for number in range(5)]
        listed = [run.id for run in bj.executions.list(sandbox_id=session.id)]
    assert listed == ran[::-1]
    assert bj.executions.get(ran[3]).text == "3"


def test_the_awaited_client_runs_many_at_once(abj: AsyncBelljar) -> None:
    async def run() -> None:
        async with abj:
            runs = await asyncio.gather(*(abj.execute(f"{number} ** 2") for number in range(8)))
        assert [run.value for run in runs] == [0, 1, 4, 9, 16, 25, 36, 49]

    asyncio.run(run())


async def is_idle(abj: AsyncBelljar, session: str) -> bool:
    return (await abj.sessions.get(session)).status != "busy"


def test_a_client_that_stops_waiting_stops_the_run(abj: AsyncBelljar) -> None:
    async def run() -> None:
        async with abj, abj.session() as session:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(session.run("import time; time.sleep(20)"), 1)
            await until_async("it has ended", lambda: is_idle(abj, session.id))
            assert (await session.run("1 + 1")).value == 2

    asyncio.run(run())
