"""Ends a process in the order in which Python itself does."""

from __future__ import annotations

import atexit
import threading

from . import report


def run_exit_handlers() -> None:
    """Waits for the user's threads, then runs `atexit` handlers; errors are printed and stop nothing."""
    for step in (threading._shutdown, atexit._run_exitfuncs):
        try:
            step()
        except BaseException as problem:
            report.strip_runner_frames(problem)
            report.note(report.format_traceback(problem), end="")


def status_of(error: BaseException | None) -> int:
    """The exit status of a program that ended this way; prints what Python would print."""
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        return report.exit_code(error)
    report.strip_runner_frames(error)
    report.note(report.format_traceback(error), end="")
    return 1
