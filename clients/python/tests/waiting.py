"""How tests wait: for a condition, never for a time. The architecture test allows a sleep only here."""

import asyncio
import time
from collections.abc import Awaitable, Callable

PATIENCE_SECONDS = 30
INTERVAL_SECONDS = 0.02


def until(what: str, holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < give_up, f"waited {PATIENCE_SECONDS} s in vain until {what}"
        time.sleep(INTERVAL_SECONDS)


async def until_async(what: str, holds: Callable[[], Awaitable[bool]]) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not await holds():
        assert time.monotonic() < give_up, f"waited {PATIENCE_SECONDS} s in vain until {what}"
        await asyncio.sleep(INTERVAL_SECONDS)
