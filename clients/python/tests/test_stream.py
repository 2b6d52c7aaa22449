from __future__ import annotations

import asyncio
import time

from belljar import AsyncBelljar, Belljar, End, Event, File, Output, Result, StatusChange

from .server import Line, Server

COUNT = "import time\nfor n in range(10):\n    print(n, flush=True)\n    time.sleep(0.1)\nn"
COUNTED = "".join(f"{number}\n" for number in range(10))
SLEEP = "import time\nprint('begun', flush=True)\ntime.sleep(20)"


def text(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Output))


def test_events_come_in_order_while_the_code_runs(bj: Belljar) -> None:
    first = 0.0
    events: list[Event] = []
    stream = bj.stream("open('a.csv', 'w').write('1')\n" + COUNT)
    for event in stream:
        if isinstance(event, Output):
            first = first or time.monotonic()
        events.append(event)
    # The code sleeps for a second between its first output and its end.
    assert time.monotonic() - first > 0.3
    assert text(events) == COUNTED
    assert isinstance(events[0], StatusChange)
    assert [event.text for event in events if isinstance(event, Result)] == ["9"]
    assert [event.name for event in events if isinstance(event, File)] == ["a.csv"]
    assert events[-1] == End(status="succeeded")
    assert stream.result().stdout == COUNTED


def test_output_may_hold_whatever_ends_a_line_somewhere(bj: Belljar) -> None:
    wrote = "a\r\nb\vc\fd\x1ce\x85f\u2028g\u2029h: i\n\ndata: j"
    assert text(list(bj.stream(f"print({wrote!r}, end='')"))) == wrote


def test_a_line_that_breaks_loses_nothing_and_repeats_nothing(server: Server, line: Line) -> None:
    with Belljar(f"http://{line.address}", server.key) as bj, bj.session() as session:
        events: list[Event] = []
        before = line.connections
        for event in session.stream(COUNT):
            events.append(event)
            if isinstance(event, Output) and event.text.strip() in ("2", "5"):
                line.cut()
        assert line.connections >= before + 2
    assert text(events) == COUNTED
    assert events[-1] == End(status="succeeded")


def test_leaving_the_loop_cancels_the_run_and_frees_the_session(bj: Belljar) -> None:
    with bj.session() as session:
        stream = session.stream(SLEEP)
        for event in stream:
            if isinstance(event, Output):
                break
        assert session.run("1 + 1").value == 2
        assert stream.result().status == "cancelled"


def test_a_run_that_is_only_looked_at_goes_on(bj: Belljar) -> None:
    stream = bj.stream(COUNT)
    for event in bj.executions.events(stream.execution_id):
        if isinstance(event, Output):
            break
    assert bj.executions.wait(stream.execution_id).stdout == COUNTED


def test_the_awaited_stream_does_the_same(server: Server, line: Line) -> None:
    async def run() -> None:
        events: list[Event] = []
        async with AsyncBelljar(f"http://{line.address}", server.key) as abj:
            stream = abj.stream(COUNT)
            async for event in stream:
                events.append(event)
                if isinstance(event, Output) and event.text == "4\n":
                    line.cut()
            assert (await stream.result()).value == 9
        assert text(events) == COUNTED

    asyncio.run(run())


def test_leaving_the_awaited_loop_cancels_the_run(abj: AsyncBelljar) -> None:
    async def run() -> None:
        async with abj:
            stream = abj.stream(SLEEP)
            async for event in stream:
                if isinstance(event, Output):
                    break
            assert (await stream.result()).status == "cancelled"

    asyncio.run(run())


def test_giving_up_on_the_awaited_loop_cancels_the_run(abj: AsyncBelljar) -> None:
    async def run() -> None:
        async with abj:
            stream = abj.stream(SLEEP)
            with_deadline = asyncio.wait_for(stream.result(), 1)
            try:
                await with_deadline
            except asyncio.TimeoutError:
                assert (await stream.result()).status == "cancelled"
            else:
                raise AssertionError("the run has ended by itself")

    asyncio.run(run())
