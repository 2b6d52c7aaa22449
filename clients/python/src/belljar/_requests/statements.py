"""Statements in SQL."""

from __future__ import annotations

import httpx

from .._decode import decode
from .._models import StatementResult
from .._plan import Plan, body, json_of, post


def run(text: str) -> Plan[list[StatementResult]]:
    return post("/v1/statements", _results, body(statements=text))


def _results(response: httpx.Response) -> list[StatementResult]:
    return [decode(StatementResult, result) for result in json_of(response)["statements"]]
