"""Frames on the control socket: a little-endian length of four bytes, then one JSON object in UTF-8.

Nothing else writes to this descriptor, and a frame is written whole or the session ends: half a frame would make every
later one unreadable.
"""

from __future__ import annotations

import json
from os import read as _read, write as _write
from threading import Lock

# The host rejects longer frames before it allocates memory for them.
MAX_FRAME_BYTES = 8 * 1024 * 1024
# Limit of user data in one frame; the rest is for the frame around it.
MAX_DATA_BYTES = MAX_FRAME_BYTES - 64 * 1024
_READ_BYTES = 64 * 1024

# Created now, because a cell may replace json.dumps, json.loads or the classes' defaults.
_scan = json.JSONDecoder().scan_once
encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _decode(text: str) -> dict:
    """Like `json.loads`, without the regular expressions for white space around the host's JSON."""
    return _scan(text, 0)[0]


def utf8(text: str) -> bytes:
    """JSON text as bytes; a lone surrogate has no UTF-8 form and becomes a question mark."""
    return text.encode("utf-8", "replace")


class Channel:
    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._unread = b""
        self._writing = Lock()  # threads of the user's may show results at any time

    def receive(self) -> dict | None:
        """The next request, or None when the host has closed its end."""
        data = self._unread or _read(self.fd, _READ_BYTES)
        if len(data) >= 4 and len(data) == 4 + int.from_bytes(data[:4], "little"):
            self._unread = b""
            return _decode(data[4:].decode())
        return self._receive_in_parts(bytearray(data))

    def _receive_in_parts(self, data: bytearray) -> dict | None:
        missing = _missing(data)
        while missing > 0:
            part = _read(self.fd, max(missing, _READ_BYTES)) if data else b""
            if not part:
                return None
            data += part
            missing = _missing(data)
        end = len(data) + missing
        self._unread = bytes(data[end:])
        return _decode(data[4:end].decode())

    def send(self, body: bytes) -> None:
        frame = len(body).to_bytes(4, "little") + body
        with self._writing:
            sent = _write(self.fd, frame)
            while sent < len(frame):
                sent += _write(self.fd, memoryview(frame)[sent:])


def _missing(data: bytearray) -> int:
    """Number of bytes that the first frame still lacks; negative if more was read."""
    if len(data) < 4:
        return 4 - len(data)
    return 4 + int.from_bytes(data[:4], "little") - len(data)
