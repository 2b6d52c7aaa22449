import json
import pickle

text = "[" * 100_000 + "]" * 100_000
try:
    json.loads(text)
except RecursionError:
    print("json")
nested = []
for _ in range(100_000):
    nested = [nested]
try:
    repr(nested)
except RecursionError:
    print("repr")
try:
    pickle.dumps(nested)
except RecursionError:
    print("pickle")


class Loop:
    def __getattr__(self, name):
        return getattr(self, name)


try:
    Loop().x
except RecursionError:
    print("getattr")
