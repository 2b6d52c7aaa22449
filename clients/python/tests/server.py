"""A real server in a data directory of its own, and a line to it that can be cut."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
# Built once, and used by every server of the tests.
SHARED = ("environments", "runtime", "tools", "cache")
# A debug build on a busy machine ends within this time.
STOP_SECONDS = 20


@dataclass(frozen=True)
class Server:
    url: str
    key: str


def binary() -> Path:
    named = os.environ.get("BELLJAR_BINARY")
    built = [REPOSITORY / "target" / kind / "belljar" for kind in ("release", "debug")]
    for path in [Path(named)] if named else built:
        if path.exists():
            return path
    raise FileNotFoundError("there is no server: build it, or set BELLJAR_BINARY")


@contextmanager
def running(*options: str) -> Iterator[Server]:
    """A server that is gone, with all that it kept, at the end."""
    data = Path(tempfile.mkdtemp(prefix="belljar-client-"))
    shared = Path(os.environ.get("BELLJAR_TEST_DATA", REPOSITORY / "target/tmp/data"))
    for name in SHARED:
        (shared / name).mkdir(parents=True, exist_ok=True)
        (data / name).symlink_to(shared / name)
    kinds = ["run_python_code", "code_runner", "code_execution"]
    bare = ["--environment", "bare", "--environment-for", ",".join(f"{it}=bare" for it in kinds)]
    command = [str(binary()), "serve", "--listen", "127.0.0.1:0", *bare, *options]
    variables = {**os.environ, "BELLJAR_DATA": str(data)}
    with (data / "log").open("wb") as log:
        process = subprocess.Popen(
            command, env=variables, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        yield _greeting(process, data / "log")
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        finally:
            process.kill()
            shutil.rmtree(data)


def _greeting(process: subprocess.Popen[str], log: Path) -> Server:
    url = key = ""
    for line in process.stdout or ():
        url = line.split()[-1] if "listens on" in line else url
        key = line.strip() if line.startswith("bj_") else key
        if url and key:
            return Server(url, key)
    raise RuntimeError(f"the server did not start: {log.read_text()}")


class Line:
    """Carries bytes between a client and a server until it is cut; then a new one can be made."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self.address = "{}:{}".format(*self._listener.getsockname())
        self.connections = 0

    def lead_to(self, server: Server) -> None:
        host, port = server.url.removeprefix("http://").split(":")
        threading.Thread(target=self._accept, args=((host, int(port)),), daemon=True).start()

    def cut(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self, server: tuple[str, int]) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(server)
                self.connections += 1
                self._ends += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=_carry, args=(source, sink), daemon=True).start()


def _carry(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65536):
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)
