def countdown(n):
    try:
        while n:
            received = yield n
            n = received if received is not None else n - 1
    finally:
        print("closed")


generator = countdown(5)
print(next(generator), generator.send(2), list(generator))


def chain(*parts):
    for part in parts:
        yield from part


print([*chain("ab", range(2))], {**{"a": 1}, "b": 2}, (lambda *a, k=3: (a, k))(1, 2))
print([y for x in range(3) if (y := x * x)], f"{3.0!r:>6}", 0xFF, 1_000, 0b11, 1e-3, 3 + 4j)
try:
    raise ValueError("a") from KeyError("b")
except ValueError as error:
    error.add_note("a note")
    print(repr(error.__cause__), error.__notes__)
assert print
del generator
print(__name__, __doc__, __debug__)
