"""The main loop of a sandbox: one request, one run, exactly one `done`.

Only this process may respond. A child that user code forks shares its memory but must never write to its channel, and
exits like any script when it returns here.
"""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from threading import get_ident, main_thread
from typing import Any, NoReturn

from . import (
    cognite_client, ending, figures, guard, installing, model_clients, network, pip_lines, plotly_show, report, results,
    signals, surroundings, tool,
)
from .asserts import ExplainedAsserts
from .cell import NO_VALUE, Cell, Interpreter, forget_source, remember_source
from .channel import MAX_DATA_BYTES, MAX_FRAME_BYTES, Channel, encode, utf8
from .json_value import NotJson, strict_json
from .reseed import reseed
from .streams import Streams

RESEED_FAILED = 71
CHANNEL_LOST = 72
# Below this limit the runner itself could not print a traceback; a lower limit applies to the cell's code only.
_LEAST_RECURSION = 1000

_DONE = b'{"ev":"done","error":null,"exit_code":null}'
_DONE_WITH_VALUE = b'{"ev":"done","error":null,"exit_code":null,"value":%b}'
_DONE_WITHOUT_VALUE = b'{"ev":"done","error":null,"exit_code":null,"value_error":%b}'
_ENTRY_MISSING = b'{"ev":"done","error":null,"exit_code":null,"entry_missing":true}'

# Limits of what one run sends. The host keeps 256 results and 1,000 refusals, reads more slowly beyond these, and ends
# a sandbox that sends without end: a loop that shows or tries something a million times must not lead to that.
_RESULTS_MAX = 512
_RESULTS_BYTES_MAX = 32 * 1024 * 1024
_REFUSALS_MAX = 1000

_WARM_UP_NAME = "<warm-up>"
_WARM_UP_RUNS = 20
# The warm-up requests use the whole path of a cell and of a tool, print nothing and define no name.
_WARM_UP_CELL = {
    "code": "print(end='')", "name": _WARM_UP_NAME, "show_last": True, "value_limit": MAX_DATA_BYTES
}
_WARM_UP_CALL = {
    "code": "def run(nothing): print(end='')", "name": _WARM_UP_NAME, "function": "run", "keywords": {"nothing": None},
    "value_limit": MAX_DATA_BYTES,
}

_exit = os._exit


def serve(runner: RunnerLoop) -> NoReturn:
    """The life of a sandbox, from the fork to the end of its channel."""
    try:
        reseeded = reseed()
    except BaseException as problem:
        _exit_with(RESEED_FAILED, f"reseeding the random generators failed; the sandbox ends: {problem!r}")
    try:
        runner.begin()
        runner.channel.send(utf8(encode({"ev": "ready", "reseeded": reseeded})))
        runner.loop()
    except BaseException as problem:
        _exit_with(CHANNEL_LOST, f"the runner failed: {problem!r}")
    _exit(0)


def _exit_with(status: int, message: str) -> NoReturn:
    try:
        os.write(2, f"belljar: {message}\n".encode())
    finally:
        _exit(status)


class RunnerLoop:
    """The loop that answers requests, for one-shot code and for sessions. Created in the zygote; a sandbox begins it.

    Its descriptors have the same numbers on both sides of the fork, but refer to different files.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.streams = Streams()
        self.main = surroundings.fresh_main()
        self.interpreter = Interpreter(self.main.__dict__)
        self._forked = False
        self._result_limit = MAX_FRAME_BYTES
        self._recursion_limit = 0
        self._results = self._results_bytes = self._unsent = self._refusals = 0
        surroundings.set_up(self.display)
        figures.emit = self.display
        installing.set_up(self._request_install)
        network.on_refused = self._report_refusal
        model_clients.set_up()
        cognite_client.install()
        plotly_show.install()

    def warm_up(self) -> None:
        """In the zygote: runs the warm-up cell so often that CPython has specialized the bytecode of the runner. A
        sandbox then does not write to those pages.
        """
        signals.install()
        for _ in range(_WARM_UP_RUNS):
            self._answer({"op": "warm"})

    def begin(self) -> None:
        """Steps that only the serving process can do."""
        self.streams.keep_duplicates()
        surroundings.copy_font_list()
        os.register_at_fork(after_in_child=self._detach_from_host)
        signals.install()

    def loop(self) -> None:
        while (request := self.channel.receive()) is not None:
            self._results = self._results_bytes = self._refusals = 0
            answer = self._answer(request)
            if self._unsent:
                unsent, self._unsent = min(self._unsent, 0xFFFFFFFF), 0
                self.channel.send(b'{"ev":"unsent","results":%d}' % unsent)
            self.channel.send(answer)
            if request["op"] == "finish":
                return

    def _answer(self, request: dict[str, Any]) -> bytes:
        self.streams.restore()
        self._give_recursion_limit()
        try:
            try:
                signals.listen()
                answer = _OPERATIONS[request["op"]](self, request)
                self.streams.flush()
            finally:
                signals.ignore()
        except BaseException as stray:
            # An interrupt can arrive after the cell, while its results or its traceback are being built.
            signals.ignore()
            self._take_recursion_limit()
            if self._forked:
                self._exit_child(stray)
            self.streams.flush()
            return self._failure(stray)
        return answer

    def _run(self, request: dict[str, Any]) -> bytes:
        self._result_limit = request.get("result_limit", MAX_FRAME_BYTES)
        source, name, show_last = request["code"], request["name"], request.get("show_last", False)
        remember_source(source, name)
        try:
            cell = self._compile(source, name, show_last=show_last, script="argv" in request)
        except BaseException as error:
            return self._not_compiled(error)
        surroundings.set_variables(request.get("variables", {}))
        answer = request.get("answer")
        before = self.interpreter.namespace.get(answer, NO_VALUE)
        value, error = self._execute(self._run_cell, cell, request.get("argv"), request.get("directory"))
        if answer is not None and error is None:
            value = self._answered(answer, before, value)
        if value is not NO_VALUE:
            self._show_last(value)
        figures.show_changed()
        if error is not None:
            return self._failure(error)
        return _DONE if value is NO_VALUE else _succeeded(value, request.get("value_limit", 0))

    def _compile(self, source: str, name: str, *, show_last: bool, script: bool) -> Cell:
        while True:
            try:
                return self.interpreter.compile(source, name, show_last=show_last)
            except SyntaxError as error:
                understood = None if script else pip_lines.without(source, error.lineno)
                if understood is None:
                    raise
                source = understood

    def _answered(self, name: str, before: Any, value: Any) -> Any:
        """The value that this cell bound to the name, or that of its last expression."""
        bound = self.interpreter.namespace.get(name, NO_VALUE)
        return value if bound is before else bound

    def _run_cell(self, cell: Cell, argv: list[str] | None, directory: str | None) -> Any:
        with nullcontext() if argv is None else surroundings.as_script(self.main, argv, directory):
            return self.interpreter.run(cell)

    def _call(self, request: dict[str, Any]) -> bytes:
        self._result_limit = request.get("result_limit", MAX_FRAME_BYTES)
        source, name, describe = request["code"], request["name"], report.describe
        remember_source(source, name)
        try:
            if request.get("explain_asserts", False):
                explained = ExplainedAsserts(source, name)
                module, describe = explained.module, explained.describe
            else:
                module = tool.compile_tool(source, name)
        except BaseException as error:
            return self._not_compiled(error)
        with surroundings.with_variables(request.get("variables", {})):
            value, error = self._execute(tool.call, self.interpreter, module, request)
        figures.show_changed()
        if error is not None:
            return self._failure(error, describe)
        return _ENTRY_MISSING if value is NO_VALUE else _succeeded(value, request.get("value_limit", 0))

    def _execute(self, action: Callable[..., Any], *arguments: Any) -> tuple[Any, BaseException | None]:
        """Runs the user's code. A child that it forked ends here."""
        value, error = NO_VALUE, None
        try:
            value = action(*arguments)
        except BaseException as problem:
            error = problem
        self._take_recursion_limit()
        if self._forked:
            self._exit_child(error)
        return value, error

    def _not_compiled(self, error: BaseException) -> bytes:
        self._take_recursion_limit()
        report.strip_runner_frames(error)
        return _failed(report.describe(error, syntax=isinstance(error, (SyntaxError, ValueError))))

    def _failure(self, error: BaseException, describe: Callable[..., dict[str, Any]] = report.describe) -> bytes:
        report.strip_runner_frames(error)
        if isinstance(error, SystemExit):
            return b'{"ev":"done","error":null,"exit_code":%d}' % report.exit_code(error)
        report.call_users_hook(error)
        return _failed(describe(error))

    def _show_last(self, value: Any) -> None:
        if value is None:
            return
        hook = getattr(sys, "displayhook", sys.__displayhook__)
        if hook is not sys.__displayhook__:
            _call_displayhook(hook, value)
        self._emit(results.bundle(value), main=True)
        builtins._ = value

    def display(self, *values: Any, raw: bool = False, **_jupyter: Any) -> None:
        """Show values as results of this cell, in all of their forms."""
        for value in values:
            if not self._forked:
                self._emit(dict(value) if raw else results.bundle(value), main=False)
            elif not raw:
                print(repr(value))

    def _emit(self, data: dict[str, Any], *, main: bool) -> None:
        # Flush printed output into the pipes before the result goes to the channel.
        self.streams.flush()
        if self._results >= _RESULTS_MAX or self._results_bytes >= _RESULTS_BYTES_MAX:
            self._unsent += 1
            return
        frame = results.frame(data, self._result_limit, main=main)
        self._results += 1
        self._results_bytes += len(frame)
        signals.uninterrupted(self.channel.send, frame)

    def _request_install(self, requirements: list[str]) -> dict[str, Any]:
        """Asks the host and waits. An interrupt during the wait is delivered after the response, which then comes at
        once: otherwise the response would be taken for the next request.
        """
        if get_ident() != main_thread().ident:
            raise guard.NotInstalled("a thread cannot install packages", "install them before the thread is started")
        self.streams.flush()
        question = utf8(encode({"ev": "install", "requirements": requirements}))
        answers: list[dict[str, Any] | None] = []

        def ask(frame: bytes) -> None:
            self.channel.send(frame)
            answers.append(self.channel.receive())

        signals.uninterrupted(ask, question)
        if answers[0] is None:
            raise EOFError("the channel is closed")
        return answers[0]

    def _report_refusal(self, place: str) -> None:
        self._refusals += 1
        if self._refusals <= _REFUSALS_MAX:
            signals.uninterrupted(self.channel.send, utf8(encode({"ev": "refused", "place": place})))

    def _warm(self, request: dict[str, Any]) -> bytes:
        """Touches every page that a first cell or call will need, and leaves no other effect."""
        warm_up_cell()
        self._run(_WARM_UP_CELL)
        self._call(_WARM_UP_CALL)
        forget_source(_WARM_UP_NAME)
        surroundings.forget_tool()
        self.streams.touch()
        return _DONE

    def _finish(self, request: dict[str, Any]) -> bytes:
        ending.run_exit_handlers()
        return _DONE

    def _detach_from_host(self) -> None:
        if not self._forked:
            self._forked = True
            figures.emit = None
            installing.ask = None
            network.on_refused = None
            os.close(self.channel.fd)

    def _exit_child(self, error: BaseException | None) -> NoReturn:
        status = 1
        try:
            status = ending.status_of(error)
            ending.run_exit_handlers()
            self.streams.flush()
        finally:
            _exit(status)

    def _take_recursion_limit(self) -> None:
        limit = sys.getrecursionlimit()
        if limit < _LEAST_RECURSION:
            self._recursion_limit = limit
            sys.setrecursionlimit(_LEAST_RECURSION)

    def _give_recursion_limit(self) -> None:
        if self._recursion_limit:
            sys.setrecursionlimit(self._recursion_limit)
            self._recursion_limit = 0


_OPERATIONS = {"run": RunnerLoop._run, "call": RunnerLoop._call, "warm": RunnerLoop._warm, "finish": RunnerLoop._finish}


def warm_up_cell() -> None:
    interpreter = Interpreter({"__name__": "__main__", "__builtins__": builtins})
    cell = interpreter.compile("print(end='')\nx = 1\nx", _WARM_UP_NAME, show_last=True)
    value = interpreter.run(cell)
    results.frame(results.bundle(value), MAX_FRAME_BYTES, main=True)
    _succeeded([value, {"a": 1.5}], MAX_FRAME_BYTES)


def _call_displayhook(hook: Any, value: Any) -> None:
    try:
        hook(value)
    except Exception as problem:
        report.note(f"sys.displayhook failed: {report.type_name(problem)}")


def _succeeded(value: Any, limit: int) -> bytes:
    try:
        return _DONE_WITH_VALUE % strict_json(value, min(limit, MAX_DATA_BYTES))
    except NotJson as refusal:
        return _DONE_WITHOUT_VALUE % utf8(encode(refusal.as_dict()))


def _failed(error: dict[str, Any]) -> bytes:
    return b'{"ev":"done","error":%b,"exit_code":null}' % utf8(encode(error))
