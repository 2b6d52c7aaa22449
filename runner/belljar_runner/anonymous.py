"""Anonymous shared memory where no cgroup counts memory.

The seccomp filter refuses it there: a process can hold it without mapping it, so the host could not count it. An
unnamed file in `/tmp` is shared with children in the same way, and is counted. This is a convenience and no isolation
layer.
"""

from __future__ import annotations

import mmap
import os
from typing import Any

_Plain = mmap.mmap
_NO_FILE = -1


def install() -> None:
    """Call this before other modules import `mmap.mmap` by name."""
    mmap.mmap = _Counted  # type: ignore[misc]


class _Counted(_Plain):
    def __new__(cls, fileno: int, length: int, flags: int = mmap.MAP_SHARED, *rest: Any, **named: Any) -> _Counted:
        try:
            return super().__new__(cls, fileno, length, flags, *rest, **named)
        except PermissionError:
            if fileno != _NO_FILE:
                raise
        file = os.open("/tmp", os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(file, length)
            return super().__new__(cls, file, length, flags & ~mmap.MAP_ANONYMOUS, *rest, **named)
        finally:
            os.close(file)


_Counted.__name__ = _Counted.__qualname__ = _Plain.__name__
_Counted.__module__ = _Plain.__module__
_Counted.__doc__ = _Plain.__doc__
