"""The floor that everything is measured against: a plain fork of the same warm interpreter and a pipe round trip.

Runs without isolation layers, with the Python and the packages of the environment. For every line on stdin it forks once,
sends the child a byte and reads the answer, and prints how many nanoseconds that took; the child is waited for before
the next line is read.
"""

import gc
import importlib
import os
import sys
from time import perf_counter_ns

runner, *preload = sys.argv[1:]
sys.path.insert(0, runner)
from belljar_runner import warmup  # noqa: E402

for module in preload:
    importlib.import_module(module)
warmup.warm_up()
gc.collect()
gc.freeze()


def fork_and_ask() -> int:
    to_child, ask = os.pipe()
    answer, from_child = os.pipe()
    started = perf_counter_ns()
    child = os.fork()
    if child == 0:
        os.write(from_child, os.read(to_child, 1))
        os._exit(0)
    os.write(ask, b"?")
    os.read(answer, 1)
    took = perf_counter_ns() - started
    os.waitpid(child, 0)
    for descriptor in (to_child, ask, answer, from_child):
        os.close(descriptor)
    return took


print("ready", flush=True)
for _ in sys.stdin:
    print(fork_and_ask(), flush=True)
