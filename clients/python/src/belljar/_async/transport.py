"""Sends plans over HTTP and returns what the server answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import httpx

from .._connection import options, partial
from .._errors import BelljarError
from .._events import Follow, ended_early
from .._io import async_displayable, async_request, async_sleep, async_write
from .._models import Event, Page
from .._plan import Pause, Plan, Steps, answer, refusal, retry_seconds, unreachable

T = TypeVar("T")


class AsyncTransport:
    def __init__(self, url: str | None, api_key: str | None) -> None:
        self._http = httpx.AsyncClient(**options(url, api_key))

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, plan: Plan[T]) -> T:
        retries = 0
        while True:
            response = await self._respond(plan)
            seconds = retry_seconds(plan, response, retries)
            if seconds is None:
                return async_displayable(self, answer(plan, response))
            await async_sleep(seconds)
            retries += 1

    async def _respond(self, plan: Plan[Any]) -> httpx.Response:
        try:
            with ExitStack() as opened:
                return await self._http.request(**async_request(plan, opened))
        except httpx.TransportError as error:
            raise unreachable(self._http.base_url, error) from error

    async def run_steps(self, steps: Steps[T]) -> T:
        received: Any = None
        while True:
            try:
                step = steps.send(received)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Pause):
                await async_sleep(step.seconds)
            else:
                received = await self.send(step)

    async def pages(self, plan: Plan[Page[T]]) -> AsyncIterator[T]:
        while True:
            page = await self.send(plan)
            for item in page.items:
                yield item
            if page.next_cursor is None:
                return
            plan = plan.after(page.next_cursor)

    async def follow(self, follow: Follow) -> AsyncIterator[Event]:
        while not follow.finished:
            try:
                async with self._opened(follow.plan()) as response:
                    async for piece in response.aiter_bytes():
                        for event in follow.receive(piece):
                            yield async_displayable(self, event)
                if not follow.finished:
                    raise ended_early()
            except BelljarError as error:
                await async_sleep(follow.broken(error))

    async def save(self, plan: Plan[bytes], to: str | PathLike[str]) -> Path:
        target = Path(to)
        part = partial(target)
        try:
            async with self._opened(plan) as response:
                with part.open("wb") as file:
                    async for piece in response.aiter_bytes():
                        await async_write(file, piece)
            return part.replace(target)
        finally:
            part.unlink(missing_ok=True)

    @asynccontextmanager
    async def _opened(self, plan: Plan[Any]) -> AsyncIterator[httpx.Response]:
        try:
            with ExitStack() as opened:
                async with self._http.stream(**async_request(plan, opened)) as response:
                    if not response.is_success:
                        await response.aread()
                        raise refusal(response)
                    yield response
        except httpx.TransportError as error:
            raise unreachable(self._http.base_url, error) from error
