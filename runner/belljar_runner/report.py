"""Reports an exception to the user: its type, its message, and a traceback of the user's frames alone."""

from __future__ import annotations

import os
import re
import sys
from traceback import TracebackException
from types import TracebackType
from typing import Any

from . import guard, type_names
from .surroundings import TOOL_MODULE

_MESSAGE_CHARS = 16 * 1024
_TRACEBACK_CHARS = 64 * 1024
# An endless recursion under a raised limit leaves a million frames; only the two ends matter.
_FRAMES_AT_EACH_END = 500

_RUNNER_PREFIX = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# Where a traceback names an exception, alone or in a group; Python leaves out only the module `__main__`.
_leave_out_tool_module = re.compile(rf"^((?: *\| )?){TOOL_MODULE}\.", re.MULTILINE).sub


def describe(error: BaseException, *, syntax: bool = False) -> dict[str, Any]:
    description = {
        "type": type_name(error),
        "message": shorten(_message(error), _MESSAGE_CHARS),
        "traceback": shorten(format_traceback(error), _TRACEBACK_CHARS),
        "syntax": syntax,
    }
    what = guard.denied(error)
    if what is None:
        return description
    return description | {"denied": what, "hint": guard.hint(error)}


def type_name(error: BaseException) -> str:
    return type_names.type_name(type(error))


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "<exception str() failed>"


def format_traceback(error: BaseException) -> str:
    try:
        formatted = TracebackException(type(error), error, error.__traceback__, compact=True)
        if error.__traceback__ is None:
            formatted.stack = None  # no "Traceback" headline over nothing, as Python prints a syntax error
        return _leave_out_tool_module(r"\1", "".join(formatted.format()))
    except Exception as problem:
        return f"{explain(error)}\n(no traceback: formatting it failed with {type_name(problem)})\n"


def text_of(value: Any) -> str:
    """The value's repr, or a note about why it has none."""
    try:
        return str.__str__(repr(value))  # a repr may be of a class of the user's
    except Exception as problem:
        return f"<{type_names.type_name(type(value))} object whose repr failed: {explain(problem)}>"


def strip_runner_frames(error: BaseException) -> None:
    """Removes the runner's frames from an exception and from all that are chained or grouped with it."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = _of_user(current.__traceback__)
        waiting += (current.__cause__, current.__context__)
        if isinstance(current, BaseExceptionGroup):
            waiting += current.exceptions


def _of_user(trace: TracebackType | None) -> TracebackType | None:
    users = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_RUNNER_PREFIX):
            users.append(trace)
        trace = trace.tb_next
    if len(users) > 2 * _FRAMES_AT_EACH_END:
        del users[_FRAMES_AT_EACH_END:-_FRAMES_AT_EACH_END]
    rest = None
    for entry in reversed(users):
        if entry.tb_next is not rest:
            entry = TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
        rest = entry
    return rest


def shorten(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def exit_code(request: SystemExit) -> int:
    """The status that a shell would see, with the message that Python would print."""
    code = request.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    note(code)
    return 1


def call_users_hook(error: BaseException) -> None:
    """A cell may have set `sys.excepthook`; whatever it does, even exit, the error is reported too."""
    hook = getattr(sys, "excepthook", sys.__excepthook__)
    if hook is sys.__excepthook__:
        return
    try:
        hook(type(error), error, error.__traceback__)
    except SystemExit:
        pass
    except BaseException as problem:
        note(f"sys.excepthook failed: {explain(problem)}")


def explain(problem: BaseException) -> str:
    return f"{type_name(problem)}: {_message(problem)}"


def note(text: object, end: str = "\n") -> None:
    try:
        print(text, end=end, file=sys.stderr)
    except Exception:
        pass  # stderr may be closed or gone, or the text refuse to be one
