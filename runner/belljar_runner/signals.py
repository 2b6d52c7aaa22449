"""When a signal may interrupt Python code, and when it may not.

While a cell runs, SIGINT raises KeyboardInterrupt and everything else is as in plain Python. Between cells the main
thread belongs to the runner: a late interrupt is dropped rather than kept for the next cell, and timers that a cell did
not cancel wait until the next cell runs. Otherwise a handler that raises could run between reading a frame and storing
it.
"""

from __future__ import annotations

from _signal import (  # the C functions: signal's wrappers build an enum for every answer
    SIG_BLOCK, SIG_SETMASK, SIGALRM, SIGINT, SIGPROF, SIGUSR1, SIGUSR2, SIGVTALRM,
    getsignal, pthread_sigmask, signal, valid_signals,
)
from collections.abc import Callable
from threading import get_ident, main_thread
from typing import TypeVar

_Argument = TypeVar("_Argument")

_EVERY = valid_signals()
_TIMERS = (SIGALRM, SIGVTALRM, SIGPROF, SIGUSR1, SIGUSR2)
_NONE = ()

_cell_runs = False
_users_handler = None


def _on_interrupt(signum: int, frame: object) -> None:
    if _cell_runs:
        raise KeyboardInterrupt


def install() -> None:
    signal(SIGINT, _on_interrupt)
    pthread_sigmask(SIG_SETMASK, _TIMERS)


def listen() -> None:
    """From here on a signal may raise: call this inside the `try` that catches it."""
    global _cell_runs
    if _users_handler is not None:
        signal(SIGINT, _users_handler)
    _cell_runs = True
    pthread_sigmask(SIG_SETMASK, _NONE)


def ignore() -> None:
    global _cell_runs, _users_handler
    _cell_runs = False
    handler = getsignal(SIGINT)
    if handler is _on_interrupt:
        _users_handler = None
    else:
        _users_handler = handler
        signal(SIGINT, _on_interrupt)
    pthread_sigmask(SIG_SETMASK, _TIMERS)


def uninterrupted(action: Callable[[_Argument], None], argument: _Argument) -> None:
    """Does something that must not be interrupted; a signal during it is delivered right after it."""
    if get_ident() != main_thread().ident:
        return action(argument)  # Python runs signal handlers in the main thread only
    try:
        pthread_sigmask(SIG_BLOCK, _EVERY)
        action(argument)
    finally:
        pthread_sigmask(SIG_SETMASK, _NONE if _cell_runs else _TIMERS)
