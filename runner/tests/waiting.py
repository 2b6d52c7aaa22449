"""How tests wait: for a condition, never for a time. The architecture test allows a sleep only here."""

import time
from collections.abc import Callable

PATIENCE_SECONDS = 30
_INTERVAL_SECONDS = 0.005


def until(what: str, holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > give_up:
            raise TimeoutError(f"waited {PATIENCE_SECONDS} s in vain until {what}")
        time.sleep(_INTERVAL_SECONDS)


def any_moment(seconds: float) -> None:
    """Lets an event that may come at any moment come at this one. The test must hold for every moment."""
    time.sleep(seconds)


def slow_peer(seconds: float) -> None:
    """The pause of a host that is slow on purpose."""
    time.sleep(seconds)
