"""A runner as the host sees it: a forked process with a socket for frames and two pipes for its output."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import textwrap
import time
import unittest
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from belljar_runner import figures, session
from belljar_runner.channel import Channel
from tests.waiting import PATIENCE_SECONDS, until

MEBIBYTE = 1024 * 1024
_LIMITS = {"result_limit": MEBIBYTE, "value_limit": MEBIBYTE}
# unittest shows every warning while it runs; a runner starts with Python's defaults.
_FILTERS = warnings.filters[:]


@dataclass
class Reply:
    """Everything that one request returned, with the printed text in the order in which it could be read."""

    printed: list[tuple[str, str]] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unsent: int = 0
    done: dict[str, Any] = field(default_factory=dict)

    @property
    def stdout(self) -> str:
        return "".join(text for stream, text in self.printed if stream == "stdout")

    @property
    def stderr(self) -> str:
        return "".join(text for stream, text in self.printed if stream == "stderr")

    @property
    def error(self) -> dict[str, Any] | None:
        return self.done["error"]

    @property
    def traceback(self) -> str:
        return self.done["error"]["traceback"]

    @property
    def main(self) -> dict[str, Any] | None:
        return next((result["data"] for result in self.results if result["main"]), None)


class Runner:
    def __init__(self, start: Callable[[str, int, int, int], int] | None = None) -> None:
        self.workspace = tempfile.mkdtemp(prefix="belljar-test-")
        self._socket, theirs = socket.socketpair()
        out, their_out = os.pipe()
        err, their_err = os.pipe()
        self.pid = (start or _fork_runner)(self.workspace, theirs.fileno(), their_out, their_err)
        self._is_our_child = start is None
        for fd in (theirs.detach(), their_out, their_err):
            os.close(fd)
        self._pipes = {out: "stdout", err: "stderr"}
        self._unread = bytearray()
        self._cells = 0

    @cached_property
    def ready(self) -> dict[str, Any]:
        return self.collect().done

    def send(self, **request: Any) -> None:
        assert self.ready["ev"] == "ready"
        body = json.dumps(request).encode()
        self._socket.sendall(len(body).to_bytes(4, "little") + body)

    def start(self, code: str, **options: Any) -> None:
        self._cells += 1
        named = {"name": f"<cell {self._cells}>", "show_last": True}
        self.send(op="run", code=_block(code), **(named | _LIMITS | options))

    def run(self, code: str, **options: Any) -> Reply:
        self.start(code, **options)
        return self.collect()

    def start_call(self, code: str, function: str = "handle", **options: Any) -> None:
        self.send(op="call", code=_block(code), function=function, **({"name": "tool.py"} | _LIMITS | options))

    def call(self, code: str, function: str = "handle", **options: Any) -> Reply:
        self.start_call(code, function, **options)
        return self.collect()

    def wait_for_mark(self) -> None:
        """Waits until the code has made the file `mark`, and removes it."""
        mark = os.path.join(self.workspace, "mark")
        until("the code has made its mark", lambda: os.path.exists(mark))
        os.remove(mark)

    def wait_for_sleep(self) -> None:
        """Waits until the code waits in a system call.

        Python handles a signal that arrives between two instructions at the next one, even if that is a long sleep: a
        signal that is sent right after the mark could be unnoticed until the sleep ends.
        """
        until("the code sleeps", lambda: self._state() == "S")

    def _state(self) -> str:
        with open(f"/proc/{self.pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0]

    def interrupt(self) -> None:
        os.kill(self.pid, signal.SIGINT)

    def collect(self) -> Reply:
        """Reads until `done`, then the rest of the pipes, as the host must."""
        reply = Reply()
        with selectors.DefaultSelector() as selector:
            for source in (self._socket, *self._pipes):
                selector.register(source, selectors.EVENT_READ)
            give_up = time.monotonic() + PATIENCE_SECONDS
            while not reply.done:
                ready = selector.select(give_up - time.monotonic())
                if not ready:
                    raise TimeoutError(f"no answer from the runner, so far {reply}")
                for key, _ in ready:
                    if not self._take(key.fd, reply):
                        selector.unregister(key.fileobj)
            self._drain(reply)
        return reply

    def _drain(self, reply: Reply) -> None:
        for fd, stream in self._pipes.items():
            os.set_blocking(fd, False)
            try:
                while text := os.read(fd, MEBIBYTE):
                    reply.printed.append((stream, text.decode(errors="surrogateescape")))
            except BlockingIOError:
                pass
            os.set_blocking(fd, True)

    def _take(self, fd: int, reply: Reply) -> bool:
        if fd in self._pipes:
            text = os.read(fd, MEBIBYTE)
            reply.printed.append((self._pipes[fd], text.decode(errors="surrogateescape")))
            return text != b""
        data = self._socket.recv(MEBIBYTE)
        if not data:
            self._drain(reply)
            raise ConnectionError(f"the runner is gone: {reply}")
        self._unread += data
        while (end := 4 + int.from_bytes(self._unread[:4], "little")) <= len(self._unread) and len(self._unread) >= 4:
            frame = json.loads(self._unread[4:end])
            del self._unread[:end]
            if frame["ev"] == "unsent":
                reply.unsent += frame["results"]
            elif frame["ev"] == "refused":
                reply.refused.append(frame["place"])
            elif frame["ev"] == "result":
                reply.results.append(frame)
            else:
                assert not reply.done, "two done frames"
                reply.done = frame
        return True

    def exit_status(self) -> int:
        """Waits for the runner to exit by itself."""
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        self._socket.close()
        for fd in self._pipes:
            os.close(fd)
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            if self._is_our_child:
                os.waitpid(self.pid, 0)
        shutil.rmtree(self.workspace)


def _block(code: str) -> str:
    """Code that begins with a line break is a block of the test's own text and loses that text's indentation."""
    return textwrap.dedent(code).strip() if code.startswith("\n") else code


def _fork_runner(workspace: str, channel: int, out: int, err: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        null = os.open("/dev/null", os.O_RDONLY)
        # Out of the way first, so that no target is overwritten before it is copied.
        for target, fd in enumerate([os.dup(fd) for fd in (null, out, err, channel)]):
            os.dup2(fd, target, inheritable=target < 3)
        os.closerange(4, 256)
        os.chdir(workspace)
        os.setpgid(0, 0)
        warnings.filters[:] = _FILTERS
        warnings._filters_mutated()
        figures.install()
        session.serve(session.RunnerLoop(Channel(3)))
    finally:
        os._exit(99)


class RunnerTest(unittest.TestCase):
    """A fresh runner for each test."""

    maxDiff = None

    def setUp(self) -> None:
        self.runner = Runner()
        self.assertEqual(self.runner.ready["ev"], "ready")
        self.addCleanup(self.runner.close)
        self.run_cell = self.runner.run
        self.call = self.runner.call

    def value_of(self, code: str) -> Any:
        done = self.run_cell(code).done
        self.assertIsNone(done["error"], done)
        return done["value"]

    def result_of(self, code: str, function: str = "handle", **options: Any) -> Any:
        done = self.call(code, function, **options).done
        self.assertIsNone(done["error"], done)
        return done["value"]

    def assert_still_works(self) -> None:
        reply = self.run_cell("print('still')\n6 * 7")
        self.assertEqual((reply.stdout, reply.done.get("value")), ("still\n", 42), reply)


HERE = os.path.dirname(os.path.abspath(__file__))
SITE = os.path.join(os.path.dirname(HERE), "site")
if SITE not in sys.path:
    sys.path.append(SITE)
