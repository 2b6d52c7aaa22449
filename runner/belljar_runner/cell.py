"""One cell: from source text to the value of its last expression.

A cell is compiled as two pieces, its statements and its last expression, so that the value can be shown without
`displayhook` and without rewriting the user's code. Both run in the namespace of `__main__`.
"""

from __future__ import annotations

import __future__ as _future
import ast
import asyncio
import linecache
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from functools import reduce
from inspect import CO_COROUTINE, CO_ITERABLE_COROUTINE
from operator import or_
from types import CodeType, GeneratorType
from typing import Any, NamedTuple

from . import type_names

NO_VALUE: Any = object()
_Outcome = tuple[Any, BaseException | None]

_run_code = eval  # also runs statements; cells may hide the builtin
_FUTURES = reduce(or_, (getattr(_future, name).compiler_flag for name in _future.all_feature_names))


class Cell(NamedTuple):
    statements: CodeType | None
    last: CodeType | None

    @property
    def awaits(self) -> bool:
        return any(code is not None and code.co_flags & CO_COROUTINE for code in self)


class Interpreter:
    """State that cells share besides the namespace: `__future__` features, event loop, context."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.namespace = namespace
        self._futures = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        # Tasks run in their own context; a shared one keeps decimal's and numpy's settings made after an await.
        self._context = copy_context()

    def compile(self, source: str, name: str, *, show_last: bool) -> Cell:
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | self._futures
        if not show_last:
            return Cell(self._keep_futures(compile(source, name, "exec", flags, True)), None)
        tree = compile(source, name, "exec", flags | ast.PyCF_ONLY_AST, True)
        if not tree.body or not isinstance(tree.body[-1], ast.Expr):
            return Cell(self._keep_futures(compile(tree, name, "exec", flags, True)), None)
        last = ast.Expression(tree.body.pop().value)
        statements = None
        if tree.body:
            statements = self._keep_futures(compile(tree, name, "exec", flags, True))
        return Cell(statements, compile(last, name, "eval", flags | self._futures, True))

    def _keep_futures(self, code: CodeType) -> CodeType:
        self._futures |= code.co_flags & _FUTURES
        return code

    def run(self, cell: Cell) -> Any:
        if cell.awaits:
            return self._complete(_run_awaiting(cell, self.namespace))
        if cell.statements is not None:
            self._context.run(_run_code, cell.statements, self.namespace)
        return NO_VALUE if cell.last is None else self._context.run(_run_code, cell.last, self.namespace)

    def execute(self, module: CodeType, namespace: dict[str, Any]) -> None:
        self._context.run(_run_code, module, namespace)

    def call(self, function: Callable[..., Any], positional: list[Any], keywords: dict[str, Any]) -> Any:
        value = self._context.run(function, *positional, **keywords)
        return self._complete(_awaited(value)) if _is_awaitable(value) else value

    def _complete(self, work: Coroutine[Any, Any, _Outcome]) -> Any:
        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        task = self._loop.create_task(work, context=self._context)
        try:
            value, error = self._loop.run_until_complete(task)
        except KeyboardInterrupt as interrupt:
            # The interrupt hit the loop's own code. Cancelling runs the user's `finally` and finds the user's line.
            task.cancel()
            _, cancelled = self._loop.run_until_complete(task)
            raise interrupt.with_traceback(cancelled and cancelled.__traceback__) from None
        if error is not None:
            raise error
        return value


async def _run_awaiting(cell: Cell, namespace: dict[str, Any]) -> _Outcome:
    """Runs both pieces in one task, so that the last expression can await a task that the statements started.

    An exception caught here carries only the user's frames, not those of the event loop.
    """
    value = NO_VALUE
    try:
        for code in cell:
            if code is not None:
                value = _run_code(code, namespace)
                if code.co_flags & CO_COROUTINE:
                    value = await value
    except BaseException as error:
        return NO_VALUE, error
    return (NO_VALUE if cell.last is None else value), None


def _is_awaitable(value: Any) -> bool:
    """Like `inspect.isawaitable`, but without asking the value's metaclass."""
    kind = type(value)
    if kind is GeneratorType:
        return bool(value.gi_code.co_flags & CO_ITERABLE_COROUTINE)
    return type_names.has(kind, "__await__")


async def _awaited(value: Awaitable[Any]) -> _Outcome:
    try:
        return await value, None
    except BaseException as error:
        return NO_VALUE, error


def remember_source(source: str, name: str) -> None:
    """Lets tracebacks and `inspect.getsource` quote the cell, now and from later cells."""
    # Without a modification time, linecache never looks for a file of that name. The last line must end with a line
    # break, as linecache ensures for files, or the carets under it are one column off in Python 3.11 and 3.12.
    linecache.cache[name] = (len(source), None, (source + "\n").splitlines(keepends=True), name)


def forget_source(name: str) -> None:
    linecache.cache.pop(name, None)
