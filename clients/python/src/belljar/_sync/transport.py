# Generated from ../_async/transport.py by generate_sync.py. Do not edit.
"""Sends plans over HTTP and returns what the server answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import httpx

from .._connection import options, partial
from .._errors import BelljarError
from .._events import Follow, ended_early
from .._io import displayable, request, sleep, write
from .._models import Event, Page
from .._plan import Pause, Plan, Steps, answer, refusal, retry_seconds, unreachable

T = TypeVar("T")


class Transport:
    def __init__(self, url: str | None, api_key: str | None) -> None:
        self._http = httpx.Client(**options(url, api_key))

    def close(self) -> None:
        self._http.close()

    def send(self, plan: Plan[T]) -> T:
        retries = 0
        while True:
            response = self._respond(plan)
            seconds = retry_seconds(plan, response, retries)
            if seconds is None:
                return displayable(self, answer(plan, response))
            sleep(seconds)
            retries += 1

    def _respond(self, plan: Plan[Any]) -> httpx.Response:
        try:
            with ExitStack() as opened:
                return self._http.request(**request(plan, opened))
        except httpx.TransportError as error:
            raise unreachable(self._http.base_url, error) from error

    def run_steps(self, steps: Steps[T]) -> T:
        received: Any = None
        while True:
            try:
                step = steps.send(received)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Pause):
                sleep(step.seconds)
            else:
                received = self.send(step)

    def pages(self, plan: Plan[Page[T]]) -> Iterator[T]:
        while True:
            page = self.send(plan)
            for item in page.items:
                yield item
            if page.next_cursor is None:
                return
            plan = plan.after(page.next_cursor)

    def follow(self, follow: Follow) -> Iterator[Event]:
        while not follow.finished:
            try:
                with self._opened(follow.plan()) as response:
                    for piece in response.iter_bytes():
                        for event in follow.receive(piece):
                            yield displayable(self, event)
                if not follow.finished:
                    raise ended_early()
            except BelljarError as error:
                sleep(follow.broken(error))

    def save(self, plan: Plan[bytes], to: str | PathLike[str]) -> Path:
        target = Path(to)
        part = partial(target)
        try:
            with self._opened(plan) as response:
                with part.open("wb") as file:
                    for piece in response.iter_bytes():
                        write(file, piece)
            return part.replace(target)
        finally:
            part.unlink(missing_ok=True)

    @contextmanager
    def _opened(self, plan: Plan[Any]) -> Iterator[httpx.Response]:
        try:
            with ExitStack() as opened:
                with self._http.stream(**request(plan, opened)) as response:
                    if not response.is_success:
                        response.read()
                        raise refusal(response)
                    yield response
        except httpx.TransportError as error:
            raise unreachable(self._http.base_url, error) from error
