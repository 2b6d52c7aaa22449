"""Sends plans, and waits for what comes of them."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import httpx

from .._connection import options, partial, request
from .._errors import BelljarError
from .._events import Follow, ended_early
from .._models import Event, Execution, File, Page
from .._plan import Pause, Plan, Steps, answer, refusal, retry_seconds, unreachable
from .._requests import files

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
                return self._shown(answer(plan, response))
            time.sleep(seconds)
            retries += 1

    def _respond(self, plan: Plan[Any]) -> httpx.Response:
        try:
            with ExitStack() as opened:
                return self._http.request(**request(plan, opened))
        except httpx.TransportError as error:
            raise unreachable(self._http.base_url, error) from error

    def _shown(self, answered: T) -> T:
        """Files that are images can show themselves from here on."""
        if isinstance(answered, Execution):
            for file in answered.files:
                self._shown(file)
        elif isinstance(answered, File) and answered.url:
            answered._load = functools.partial(self._load, answered)
        return answered

    def _load(self, file: File) -> bytes:
        return self.send(files.asset(file))

    def walk(self, steps: Steps[T]) -> T:
        answered: Any = None
        while True:
            try:
                step = steps.send(answered)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Pause):
                time.sleep(step.seconds)
            else:
                answered = self.send(step)

    def pages(self, plan: Plan[Page[T]]) -> Iterator[T]:
        while True:
            page = self.send(plan)
            yield from page.items
            if page.next_cursor is None:
                return
            plan = plan.after(page.next_cursor)

    def follow(self, follow: Follow) -> Iterator[Event]:
        while not follow.finished:
            try:
                with self._opened(follow.plan()) as response:
                    for piece in response.iter_bytes():
                        for event in follow.hear(piece):
                            yield self._shown(event)
                if not follow.finished:
                    raise ended_early()
            except BelljarError as error:
                time.sleep(follow.broken(error))

    def save(self, plan: Plan[bytes], to: str | PathLike[str]) -> Path:
        target = Path(to)
        part = partial(target)
        try:
            with self._opened(plan) as response, part.open("wb") as file:
                for piece in response.iter_bytes():
                    file.write(piece)
            return part.replace(target)
        finally:
            part.unlink(missing_ok=True)

    @contextmanager
    def _opened(self, plan: Plan[Any]) -> Iterator[httpx.Response]:
        try:
            with ExitStack() as opened, self._http.stream(**request(plan, opened)) as response:
                if not response.is_success:
                    response.read()
                    raise refusal(response)
                yield response
        except httpx.TransportError as error:
            raise unreachable(self._http.base_url, error) from error
