import contextlib
import contextvars
import functools
import itertools
import operator
import types
import typing

variable = contextvars.ContextVar("variable", default=1)
context = contextvars.copy_context()
context.run(variable.set, 2)
print(variable.get(), context[variable])


@contextlib.contextmanager
def managed():
    print("enter")
    try:
        yield 5
    finally:
        print("exit")


with managed() as value, contextlib.suppress(ZeroDivisionError):
    print(value)
    1 / 0


@functools.lru_cache
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


print(fibonacci(80), fibonacci.cache_info().hits)
print(list(itertools.batched("abcde", 2)) if hasattr(itertools, "batched") else [("a", "b"), ("c", "d"), ("e",)])
print(functools.reduce(operator.mul, range(1, 10)), list(itertools.pairwise("abc")))
try:
    raise ExceptionGroup("many", [ValueError(1), TypeError(2)])
except* ValueError as group:
    print(group.exceptions)
except* TypeError as group:
    print(group.exceptions)
print(typing.get_type_hints(types.SimpleNamespace(__annotations__={"a": "int"})))


def match(x):
    match x:
        case {"k": [a, *rest]}:
            return a, rest
        case str() | int():
            return type(x).__name__
        case _:
            return None


print(match({"k": [1, 2, 3]}), match("s"), match(1.0))
