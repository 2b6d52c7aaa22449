import sys


def depth(n):
    return 0 if n == 0 else 1 + depth(n - 1)


print(depth(900), sys.getrecursionlimit())
try:
    depth(10**6)
except RecursionError as error:
    print(str(error).startswith("maximum recursion depth exceeded"))
sys.setrecursionlimit(20_000)
print(depth(10_000))
nested = []
for _ in range(50_000):
    nested = [nested]
del nested
try:
    eval("(" * 150 + ")" * 150)
except (SyntaxError, MemoryError, RecursionError):
    pass
print("alive")
