"""Compiles the sources that a file names, a zero byte between them: compile.py FILE ROOT INSIDE

The bytecode names the files as they are found inside, below INSIDE instead of ROOT, and is believed without a look at
them: nobody can change them in there, and nobody could write better bytecode. What does not compile is passed over:
packages ship files that are meant not to, and what is needed and broken shows when it is imported.
"""

import os
import py_compile
import sys
import traceback


def compile_one(source, inside):
    try:
        py_compile.compile(
            source,
            dfile=inside,
            doraise=True,
            quiet=2,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    except (py_compile.PyCompileError, RecursionError, ValueError):
        pass


def begin(share, parent):
    """Starts a process that compiles a share, and does not outlive its parent by more than a file."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        for source, inside in share:
            if os.getppid() != parent:
                break
            compile_one(source, inside)
        else:
            status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def main(names, root, inside):
    with open(names, encoding="utf-8", errors="surrogateescape") as file:
        sources = file.read().split("\0")
    named = [(source, inside + source.removeprefix(root)) for source in sources if source]
    cores = os.cpu_count() or 1
    children = [begin(named[first::cores], os.getpid()) for first in range(cores)]
    statuses = [os.waitpid(child, 0)[1] for child in children]
    sys.exit(1 if any(statuses) else 0)


main(*sys.argv[1:])
