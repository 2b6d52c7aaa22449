from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from belljar import AsyncBelljar, AsyncSession, Belljar, BelljarError

from .waiting import until


def test_a_session_remembers_and_is_gone_after_its_with(bj: Belljar) -> None:
    with bj.session(name="notes") as session:
        session.run("x = 20")
        assert session.run("x + 1").value == 21
        assert session.info.name == "notes"
    assert bj.sessions.get(session.id).status == "closed"
    with pytest.raises(BelljarError):
        session.run("x")


def test_a_session_that_is_kept_is_found_by_its_key(bj: Belljar) -> None:
    with bj.session(key="kept", keep=True) as session:
        session.run("x = 1")
    with bj.session(key="kept") as again:
        assert again.id == session.id
        assert again.run("x").value == 1
        assert [info.sandbox_id for info in bj.sessions.list(key="kept")] == [again.id]


def test_an_open_session_can_be_joined_and_stays_open(bj: Belljar) -> None:
    with bj.session() as session:
        session.run("x = 5")
        with bj.sessions.attach(session.id) as joined:
            assert joined.run("x").value == 5
        assert session.run("x").value == 5


def test_a_reset_forgets_everything_and_says_so(bj: Belljar) -> None:
    with bj.session() as session:
        session.run("x = 1")
        session.reset()
        assert session.info.generation == 2
        forgotten = session.run("x").error
        assert forgotten is not None
        assert forgotten.code == "python.NameError"


def test_a_session_can_be_renamed(bj: Belljar) -> None:
    with bj.session() as session:
        session.update(name="later", idle_seconds=60)
        assert (session.info.name, session.info.idle_seconds) == ("later", 60)


def test_what_runs_can_be_interrupted_and_the_memory_stays(bj: Belljar) -> None:
    with bj.session() as session:
        session.run("x = 1")
        interrupts = threading.Thread(target=until, args=("it is interrupted", session.interrupt))
        interrupts.start()
        run = session.run("import time\nwhile True: time.sleep(0.01)")
        interrupts.join()
        assert run.status == "cancelled"
        assert session.run("x").value == 1
        assert session.interrupt() is False


def test_files_of_a_session_are_written_listed_read_and_deleted(
    bj: Belljar, tmp_path: Path
) -> None:
    local = tmp_path / "sales.csv"
    local.write_bytes(b"a,b\n" * 100_000)
    with bj.session() as session:
        session.upload(local)
        session.upload(local, "in/copy ?.csv")
        session.write("a.txt", "grüße")
        listed = {file.name: file.size for file in session.files()}
        assert listed == {"a.txt": 7, "sales.csv": 400_000, "in/copy ?.csv": 400_000}
        assert session.run("open('a.txt').read()").value == "grüße"
        assert session.read("a.txt") == "grüße".encode()
        there = session.download("in/copy ?.csv", tmp_path / "back.csv")
        assert there.read_bytes() == local.read_bytes()
        session.delete_file("a.txt")
        with pytest.raises(BelljarError) as raised:
            session.read("a.txt")
        assert raised.value.status == 404


def test_a_download_that_is_refused_leaves_nothing_behind(bj: Belljar, tmp_path: Path) -> None:
    with bj.session() as session, pytest.raises(BelljarError):
        session.download("no such file", tmp_path / "here")
    assert list(tmp_path.iterdir()) == []


def test_the_awaited_session_does_the_same(abj: AsyncBelljar, tmp_path: Path) -> None:
    local = tmp_path / "a.bin"
    local.write_bytes(bytes(200_000))

    async def run() -> None:
        async with abj:
            await use(abj.session())

    async def use(opening: AsyncSession) -> None:
        async with opening as session:
            await session.run("x = 20")
            assert (await session.run("x + 1")).value == 21
            await session.upload(local)
            assert (await session.run("len(open('a.bin', 'rb').read())")).value == 200_000
            saved = await session.download("a.bin", tmp_path / "b.bin")
            assert saved.read_bytes() == local.read_bytes()
            assert [file.name for file in await session.files()] == ["a.bin"]
            joined = await abj.sessions.attach(session.id)
            assert (await joined.run("x")).value == 20
            await session.reset()
            assert session.info.generation == 2
        assert (await abj.sessions.get(session.id)).status == "closed"

    asyncio.run(run())


def test_an_awaited_session_that_is_not_open_says_how_to_open_it(abj: AsyncBelljar) -> None:
    with pytest.raises(RuntimeError, match="async with"):
        _ = abj.session().id


def test_two_runs_at_once_in_a_session_are_refused(bj: Belljar) -> None:
    with bj.session() as session:
        stream = session.stream("import time; time.sleep(20)")
        with pytest.raises(BelljarError) as raised:
            session.run("1")
        assert (raised.value.code, raised.value.status) == ("session.busy", 409)
        began = time.monotonic()
        stream.cancel()
        assert stream.result().status == "cancelled"
        assert time.monotonic() - began < 5
