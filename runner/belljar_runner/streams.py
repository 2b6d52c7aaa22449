"""stdout, stderr and stdin as plain Python has them, over descriptors 1, 2 and 0.

The host reads descriptors 1 and 2 through two pipes, which loses the order between them. So that a reader sees what a
terminal would have shown, a write that changes from one stream to the other waits until the host has emptied the other
pipe. A host that does not read costs one such wait per cell, not one per line.
"""

from __future__ import annotations

import ctypes
import io
import sys
from fcntl import F_DUPFD_CLOEXEC, F_GETFD, fcntl, ioctl
from os import dup2
from termios import FIONREAD
from time import monotonic, sleep

_LONGEST_WAIT_SECONDS = 0.020
_POLL_SECONDS = 0.000_02
# High numbers, away from programs that expect to get the lowest descriptors.
_SPARES_FROM = 100

_write = io.BufferedWriter.write
_flush = io.BufferedWriter.flush
_NOTHING_UNREAD = bytes(4)

# CDLL, not PyDLL: flushing may block on a lock that another thread holds while it waits for the GIL.
_libc = ctypes.CDLL(None)
_libc.setvbuf.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
_flush_c_streams = _libc.fflush
_LINE_BUFFERED = 1


class _LastWriter:
    """The stream that was written last."""

    def __init__(self) -> None:
        self.writer: _Stream | None = None
        self.host_reads = True

    def pass_to(self, writer: _Stream) -> None:
        before, self.writer = self.writer, writer
        if before is not None and self.host_reads:
            self.host_reads = _wait_until_read(before.descriptor)


def _wait_until_read(fd: int) -> bool:
    give_up = monotonic() + _LONGEST_WAIT_SECONDS
    try:
        while ioctl(fd, FIONREAD, _NOTHING_UNREAD) != _NOTHING_UNREAD:
            if monotonic() > give_up:
                return False
            sleep(_POLL_SECONDS)
    except OSError:
        pass  # the user put something else there, which has no queue to wait for
    return True


class _Stream(io.BufferedWriter):
    """The binary layer of stdout or stderr; all the rest is Python's own.

    Not the raw layer below it: an interrupt that falls between a write in there and its return would leave Python
    with text that it does not know to be written, and it would write that again.
    """

    def __init__(self, fd: int, name: str, last_writer: _LastWriter) -> None:
        # Closing sys.stdout leaves descriptor 1 open, as it does in plain Python.
        raw = io.FileIO(fd, "w", closefd=False)
        raw.name = name
        super().__init__(raw)
        self.descriptor = fd
        self._last_writer = last_writer
        self._holds = False

    def write(self, data: bytes) -> int:
        if self._last_writer.writer is not self:
            self._last_writer.pass_to(self)
        self._holds = True
        return _write(self, data)

    def flush(self) -> None:
        if self._holds:
            if self._last_writer.writer is not self:
                self._last_writer.pass_to(self)
            self._holds = False
        _flush(self)


class Streams:
    """Owns `sys.stdin`, `sys.stdout` and `sys.stderr`, and restores them when a cell has broken them."""

    def __init__(self) -> None:
        self._last_writer = _LastWriter()
        self._spares: dict[int, int] = {}
        sys.stdin = sys.__stdin__ = self._open_stdin()
        sys.stdout = sys.__stdout__ = self._open_stdout()
        sys.stderr = sys.__stderr__ = self._open_stderr()
        for name in ("stdout", "stderr"):
            _libc.setvbuf(ctypes.c_void_p.in_dll(_libc, name), None, _LINE_BUFFERED, 0)

    def keep_duplicates(self) -> None:
        """Keeps duplicates, so that a cell which closes one of the three descriptors does not silence later cells."""
        self._spares = {fd: fcntl(fd, F_DUPFD_CLOEXEC, _SPARES_FROM) for fd in (0, 1, 2)}

    def _open_stdin(self) -> io.TextIOWrapper:
        raw = io.FileIO(0, "r", closefd=False)
        raw.name = "<stdin>"
        return io.TextIOWrapper(io.BufferedReader(raw), "utf-8", "surrogateescape")

    def _open_stdout(self) -> io.TextIOWrapper:
        return self._open_writer(1, "<stdout>", "surrogateescape")

    def _open_stderr(self) -> io.TextIOWrapper:
        return self._open_writer(2, "<stderr>", "backslashreplace")

    def _open_writer(self, fd: int, name: str, errors: str) -> io.TextIOWrapper:
        binary = _Stream(fd, name, self._last_writer)
        stream = io.TextIOWrapper(binary, "utf-8", errors, "\n", line_buffering=True)
        stream.mode = "w"
        return stream

    def touch(self) -> None:
        """Runs the code path of a printed line without printing: writing nothing to a pipe wakes no reader."""
        for stream in (sys.stderr, sys.stdout):
            stream.buffer.raw.write(b"")

    def restore(self) -> None:
        """Before a cell: reopens a stream that the last one closed; a redirected one stays redirected."""
        self._last_writer.host_reads = True
        if not _usable("stdout"):
            sys.stdout = sys.__stdout__ = self._open_stdout()
        if not _usable("stderr"):
            sys.stderr = sys.__stderr__ = self._open_stderr()
        if not _usable("stdin"):
            sys.stdin = sys.__stdin__ = self._open_stdin()

    def flush(self) -> None:
        """When this returns, all printed output is in the pipes, whichever layer held it."""
        for fd, spare in self._spares.items():
            try:
                fcntl(fd, F_GETFD)
            except OSError:
                dup2(spare, fd)
        for name in ("stdout", "stderr"):
            try:
                getattr(sys, name).flush()
            except Exception:
                pass  # deleted, closed, or an object of the user's that cannot: `restore` sees to it
        _flush_c_streams(None)


def _usable(name: str) -> bool:
    stream = getattr(sys, name, None)
    try:
        return stream is not None and not stream.closed
    except AttributeError:
        return True  # an object of the user's with a write method is enough for Python
    except Exception:
        return False  # detached
