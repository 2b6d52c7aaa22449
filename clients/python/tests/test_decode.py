from __future__ import annotations

import threading
from datetime import datetime, timezone
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from belljar import Belljar, Fault, SessionFiles, Unreachable
from belljar._decode import decode, moment


def test_what_a_newer_server_says_besides_is_left_out() -> None:
    said = {"code": "no.such.code.yet", "message": "m", "severity": 3, "_load": 1}
    assert decode(Fault, said) == Fault(code="no.such.code.yet", message="m")
    listed = decode(SessionFiles, {"files": [{"name": "a", "size": 1, "mode": 420}]})
    assert [file.name for file in listed] == ["a"]


@pytest.mark.parametrize("fraction", ["", ".5", ".500000", ".500000000"])
def test_moments_are_read_with_any_number_of_digits(fraction: str) -> None:
    microseconds = 500_000 if fraction else 0
    expected = datetime(2026, 1, 2, 3, 4, 5, microseconds, timezone.utc)
    assert moment(f"2026-01-02T03:04:05{fraction}Z") == expected


def test_another_server_at_the_address_is_noticed() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{other.server_port}"
        with Belljar(address, "bj_x") as bj, pytest.raises(Unreachable) as raised:
            bj.principals.me()
        other.shutdown()
    assert (raised.value.code, raised.value.status) == ("answer.unreadable", 404)
