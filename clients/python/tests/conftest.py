from __future__ import annotations

from collections.abc import Iterator

import pytest

from belljar import AsyncBelljar, Belljar

from .server import Line, Server, running


@pytest.fixture(scope="session")
def line() -> Iterator[Line]:
    line = Line()
    yield line
    line.close()


@pytest.fixture(scope="session")
def server(line: Line) -> Iterator[Server]:
    with running("--public-host", line.address) as server:
        line.lead_to(server)
        yield server


@pytest.fixture(scope="session")
def bj(server: Server) -> Iterator[Belljar]:
    with Belljar(server.url, server.key) as bj:
        yield bj


@pytest.fixture
def abj(server: Server) -> AsyncBelljar:
    """Made for one event loop, which the test starts and ends."""
    return AsyncBelljar(server.url, server.key)
