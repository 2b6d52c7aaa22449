"""The warm process from which every sandbox of an environment is forked.

It imports the environment's modules once, then forks on request. It never runs user code, never sees a secret, and
stays single-threaded: a thread would not survive the fork, but the locks that it held would.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib
import os
import sys
from typing import NoReturn

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, _HERE)
from belljar_runner import anonymous, figures, guard, imports, network, reseed, session, warmup  # noqa: E402
from belljar_runner.channel import Channel  # noqa: E402
sys.path.remove(_HERE)

CHANNEL_FD = 3
CANNOT_START = 70
SOCKET_CLOSED = 1


def main() -> NoReturn:
    options = _options()
    opened_before = _open_files()
    if options.files_as_shared_memory:
        anonymous.install()
    figures.install()
    network.install()
    _preload(options.preload)
    if options.warm_up:
        warmup.warm_up()
    reseed.prepare()
    guard.install(options.environment, processes=not options.no_processes, installs=not options.no_installs)
    if options.imports is not None:
        imports.install([name for name in options.imports.split(",") if name])
    runner = session.RunnerLoop(Channel(CHANNEL_FD))
    if options.warm_up:
        runner.warm_up()
    _settle_memory()
    _refuse_threads()
    _refuse_files(_open_files() - opened_before)
    library = _open(options)
    while _wait_for_request(library):
        if _fork(library) == 0:
            session.serve(runner)
    os._exit(0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="zygote")
    parser.add_argument("--lib", required=True, help="the native library that applies the isolation layers")
    parser.add_argument("--socket", type=int, required=True, help="descriptor on which spawns are requested")
    parser.add_argument("--plan", type=int, required=True, help="descriptor of the isolation plan")
    parser.add_argument("--environment", required=True, help="name of the environment, for error messages")
    parser.add_argument("--no-processes", action="store_true", help="report to code that it cannot start processes")
    parser.add_argument("--no-installs", action="store_true", help="report to code that it cannot install packages")
    parser.add_argument("--files-as-shared-memory", action="store_true", help="where the filter refuses mmap.mmap(-1, n)")
    parser.add_argument("--imports", metavar="NAMES", help="all that code may import besides the standard library")
    parser.add_argument("--preload", action="append", default=[], metavar="MODULE")
    parser.add_argument("--warm-up", action="store_true")
    return parser.parse_args()


def _preload(modules: list[str]) -> None:
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as problem:
            _stop(f"preloading {module} failed: {type(problem).__name__}: {problem}")


def _settle_memory() -> None:
    """A child's garbage collector never visits frozen objects, so their pages stay shared."""
    gc.collect()
    gc.freeze()


def _refuse_threads() -> None:
    with open("/proc/self/status") as status:
        threads = next(line.split()[1] for line in status if line.startswith("Threads:"))
    if threads != "1":
        _stop(f"it has {threads} threads and may have only one: a preloaded module started the others")


def _open_files() -> set[tuple[str, str]]:
    files = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            files.add((fd, os.readlink(f"/proc/self/fd/{fd}")))
        except FileNotFoundError:
            pass  # the descriptor of the listing itself
    return files


def _refuse_files(files: set[tuple[str, str]]) -> None:
    """A sandbox starts with the zygote's descriptors closed. An object that still owns one would close it again, and
    with it whatever file has that number by then: a file of the user's, or the channel.
    """
    if files:
        _stop(f"a preloaded module keeps files open: {', '.join(sorted(path for _, path in files))}")


def _open(options: argparse.Namespace) -> ctypes.PyDLL:
    # PyDLL: the GIL stays held over the calls, as it must between CPython's hooks before and after a fork.
    library = ctypes.PyDLL(options.lib)
    error = library.belljar_zygote_open(options.plan, options.socket)
    if error:
        _stop(f"the native library refused the plan: {os.strerror(-error)}")
    library.belljar_zygote_ready()
    return library


def _wait_for_request(library: ctypes.PyDLL) -> bool:
    answer = library.belljar_zygote_next()
    if answer < 0:
        _stop(f"the request socket failed: {os.strerror(-answer)}")
    return answer != SOCKET_CLOSED


def _fork(library: ctypes.PyDLL) -> int:
    """Forks between CPython's own hooks. When this returns 0 in the child, all isolation layers are applied there."""
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = library.belljar_zygote_fork()
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        # The library has already reported the failure to the requester.
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return pid


def _stop(reason: str) -> NoReturn:
    print(f"belljar zygote: {reason}", file=sys.stderr, flush=True)
    os._exit(CANNOT_START)


if __name__ == "__main__":
    main()
