from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from belljar import AsyncBelljar, Belljar, BelljarError


def test_a_document_is_kept_and_can_be_given_to_code(bj: Belljar, tmp_path: Path) -> None:
    local = tmp_path / "große Zahlen.csv"
    local.write_text("1\n2\n")
    document = bj.documents.upload(local)
    assert (document.name, document.size, document.source) == ("große Zahlen.csv", 4, "upload")
    assert bj.documents.get(document.id) == document
    assert document in list(bj.documents.list())
    assert bj.documents.read(document.id) == b"1\n2\n"
    assert bj.documents.download(document.id, tmp_path / "b").read_bytes() == b"1\n2\n"
    run = bj.execute("sum(map(int, open('große Zahlen.csv')))", files=[document])
    assert run.value == 3
    bj.documents.delete(document.id)
    with pytest.raises(BelljarError) as raised:
        bj.documents.get(document.id)
    assert raised.value.status == 404


def test_a_document_larger_than_a_request_goes_up(bj: Belljar, tmp_path: Path) -> None:
    local = tmp_path / "large.bin"
    local.write_bytes(bytes(9 * 1024 * 1024))
    document = bj.documents.upload(local)
    assert document.size == 9 * 1024 * 1024
    bj.documents.delete(document.id)


def test_an_address_inside_the_network_is_not_fetched(bj: Belljar) -> None:
    with pytest.raises(BelljarError) as raised:
        bj.documents.fetch(["http://127.0.0.1:9/secret"])
    assert raised.value.code in ("network.denied", "file.fetch_failed")


def test_the_awaited_client_keeps_documents_too(abj: AsyncBelljar, tmp_path: Path) -> None:
    local = tmp_path / "a.txt"
    local.write_text("hello")

    async def run() -> None:
        async with abj:
            document = await abj.documents.upload(local)
            assert document.id in [kept.id async for kept in abj.documents.list()]
            assert await abj.documents.read(document.id) == b"hello"
            await abj.documents.delete(document.id)

    asyncio.run(run())
