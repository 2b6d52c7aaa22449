"""Compiles the sources that a file names, a zero byte between them: compile.py FILE ROOT INSIDE

The bytecode names the files as they are found inside, below INSIDE instead of ROOT, and is believed without a look at
them: nobody can change them in there, and nobody could write better bytecode. What does not compile is passed over:
packages ship files that are meant not to, and what is needed and broken shows when it is imported.
"""

import concurrent.futures
import multiprocessing
import os
import py_compile
import sys

# Enough that starting a task costs nothing beside it, and few enough that no core is left alone at the end.
CHUNK = 64


def compile_one(names):
    source, inside = names
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


def main(names, root, inside):
    with open(names, encoding="utf-8", errors="surrogateescape") as file:
        sources = file.read().split("\0")
    named = [(source, inside + source.removeprefix(root)) for source in sources if source]
    # The other ways to start a process would have to find this program in a file.
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        for _ in pool.map(compile_one, named, chunksize=CHUNK):
            pass


main(*sys.argv[1:])
