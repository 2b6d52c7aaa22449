"""Work that no isolation layer should slow down, timed by itself: prints the nanoseconds of a Python loop and a numpy product."""

from time import perf_counter_ns

import numpy


def python_loop() -> int:
    started = perf_counter_ns()
    total = 0
    for number in range(1_000_000):
        total += number * number
    return perf_counter_ns() - started


def numpy_product(matrix=numpy.random.default_rng(7).random((400, 400))) -> int:
    started = perf_counter_ns()
    for _ in range(8):
        matrix @ matrix
    return perf_counter_ns() - started


print(python_loop(), numpy_product(), flush=True)
