"""What code returns leaves as strict JSON, or with the place that is none and what to do about it."""

import importlib.util
import json
import time
import unittest
from typing import Any

from belljar_runner.json_value import NotJson, strict_json
from tests.harness import MEBIBYTE, RunnerTest

_MAKE = """
import array, asyncio, collections, dataclasses, datetime, decimal, enum, fractions, functools, io, pathlib, sys, uuid

def like(module, name, *bases, **attributes):
    return type(name, bases, {"__module__": module, **attributes})

def nested(levels, inner=1):
    for _ in range(levels): inner = [inner]
    return inner

def cycle():
    x = {"name": "a", "children": []}
    x["children"].append(x)
    return x

class Color(enum.Enum):
    RED = 1

class Level(enum.IntEnum):
    HIGH = 3

class Word(enum.StrEnum):
    A = "a"

Point = collections.namedtuple("Point", "x y")

@dataclasses.dataclass
class Row:
    x: int

class Plain: pass

class SpoofsDict:
    __class__ = dict
    def items(self): return [("a", 1)]
    def __iter__(self): return iter("a")

class SpoofsNothing(dict):
    __class__ = object

class EvilDict(dict):
    def items(self): raise SystemExit(9)
    keys = values = __iter__ = __len__ = __getitem__ = __contains__ = __bool__ = __eq__ = items
    __hash__ = None

class EvilList(list):
    def __iter__(self): return iter(["evil"])
    def __len__(self): return 10**9
    def __getitem__(self, i): return "evil"

class EvilTuple(tuple):
    def __iter__(self): raise SystemExit(9)

class EvilStr(str):
    def __str__(self): return "evil"
    __repr__ = __str__
    def isascii(self): return True
    def __len__(self): return 0
    def encode(self, *a): return b"evil"

class EvilInt(int):
    def __repr__(self): return "0]}, evil"
    __str__ = __int__ = __index__ = __repr__
    def __le__(self, other): return True
    __ge__ = __lt__ = __gt__ = __le__

class EvilFloat(float):
    def __repr__(self): return "evil"
    __str__ = __repr__
    def __float__(self): return float("nan")

class EvilKey(str):
    def __hash__(self): return 0
    def __eq__(self, other): return False

class Meta(type):
    def __getattribute__(cls, name): raise RuntimeError("asked for " + name)

class EvilMeta(metaclass=Meta):
    pass

class EvilRepr:
    def __repr__(self): raise SystemExit(9)
    __str__ = __repr__

class Reordered(collections.OrderedDict):
    def __getitem__(self, key): return "evil"

def reordered():
    x = Reordered(a=1, b=2)
    x.move_to_end("a")
    return x

def handle(): pass
async def later(): pass
def count():
    yield 1
later_on = later()
"""

JSON = {
    # C-073
    '"Success message"': '"Success message"',
    # C-074
    "42": "42",
    # C-075
    "3.14159": "3.14159",
    # C-076
    "True": "true",
    "False": "false",
    # C-080
    "None": "null",
    # C-077
    '{"status": "ok", "items": [1, 2, {"deep": [None]}]}': '{"status":"ok","items":[1,2,{"deep":[null]}]}',
    # C-078
    '["a", "b"]': '["a","b"]',
    # C-079
    '[{"id": 1}, {"id": 2}]': '[{"id":1},{"id":2}]',
    '""': '""',
    "[]": "[]",
    "{}": "{}",
    "()": "[]",
    "(1, (2, [3]))": "[1,[2,[3]]]",
    "0": "0",
    "-0.0": "-0.0",
    "1e308": "1e+308",
    "5e-324": "5e-324",
    "0.1 + 0.2": "0.30000000000000004",
    "2**64 - 1": "18446744073709551615",
    "-2**63": "-9223372036854775808",
    '"é\\u2028\\U0001f600"': '"é\u2028\U0001f600"',
    r'"\"\\\x00\x1f\n\x7f"': r'"\"\\\u0000\u001f\n' + '\x7f"',
    # C-088
    '{1: "int", 2.5: "float", True: "bool", None: "none"}': '{"1":"bool","2.5":"float","null":"none"}',
    "{False: 0}": '{"false":0}',
    "{2**70: 0, -1: 1}": '{"1180591620717411303424":0,"-1":1}',
    '{"": 1, "a b": 2}': '{"":1,"a b":2}',
    "Level.HIGH": "3",
    "Word.A": '"a"',
    "{Level.HIGH: 1, Word.A: 2}": '{"3":1,"a":2}',
    "Point(1, 2)": "[1,2]",
    "collections.OrderedDict(b=1, a=2)": '{"b":1,"a":2}',
    "reordered()": '{"b":2,"a":1}',
    "collections.defaultdict(list, a=[1])": '{"a":[1]}',
    'collections.Counter("aab")': '{"a":2,"b":1}',
    'like("numpy", "float64", float)(1.5)': "1.5",
    'like("numpy", "str_", str)("x")': '"x"',
    # C-081
    "nested(100)": "[" * 100 + "1" + "]" * 100,
    "nested(120)": "[" * 120 + "1" + "]" * 120,
    # the same part twice is no cycle
    "(lambda part: [part, part])([1])": "[[1],[1]]",
    # user code has no say in how its values are read
    "EvilDict(a=1)": '{"a":1}',
    "EvilList([1, 2])": "[1,2]",
    "EvilTuple((1, 2))": "[1,2]",
    'EvilStr("honest")': '"honest"',
    "EvilInt(7)": "7",
    "EvilFloat(1.5)": "1.5",
    '{EvilKey("a"): 1, EvilKey("b"): 2}': '{"a":1,"b":2}',
    "{EvilInt(7): 1}": '{"7":1}',
    "SpoofsNothing(a=1)": '{"a":1}',
}

_DUMP = "Use the .dump() method on Cognite SDK objects"
_RECORDS = 'call .to_dict("records") on it'
_TOLIST = "call .tolist() on it"
_ISO = "call .isoformat() on it"
_ANY = "return a dict of the values that are needed"
_CALL = "return what it returns: call it"
_LOST = "readers of JSON lose digits of an integer beyond 64 bits"
_HALF = "the text has half of a surrogate pair at index {}, which no UTF-8 can carry"
_MEND = 'text.encode("utf-8", "replace").decode()'

# The value, then path, type, problem and fix.
NOT_JSON = {
    # C-082
    'like("cognite.client.assets", "Asset")()':
        ("$", "cognite.client.assets.Asset", "a cognite.client.assets.Asset is not JSON", _DUMP),
    'type("Mine", (like("cognite.client", "AssetList"),), {"__module__": "__main__"})()':
        ("$", "Mine", "a Mine is not JSON", _DUMP),
    # C-083
    '{"a": [Plain()]}': ("$.a[0]", "Plain", "a Plain is not JSON", _ANY),
    "object()": ("$", "object", "an object is not JSON", _ANY),
    # C-084
    "handle": ("$", "function", "a function is not JSON", _CALL),
    "lambda: 1": ("$", "function", "a function is not JSON", _CALL),
    "print": ("$", "builtin_function_or_method", "a builtin_function_or_method is not JSON", _CALL),
    "functools.partial(print)": ("$", "functools.partial", "a functools.partial is not JSON", _CALL),
    "Plain": ("$", "type", "a type is not JSON", _CALL),
    # C-085
    "io.StringIO()": ("$", "_io.StringIO", "a _io.StringIO is not JSON", "return what it reads"),
    "sys.__stdout__": ("$", "_io.TextIOWrapper", "a _io.TextIOWrapper is not JSON", "return what it reads"),
    # C-086
    'b"binary"': ("$", "bytes", "a bytes is not JSON", "decode it, or write it to a file"),
    "bytearray(1)": ("$", "bytearray", "a bytearray is not JSON", "decode it, or write it to a file"),
    'memoryview(b"")': ("$", "memoryview", "a memoryview is not JSON", "decode it, or write it to a file"),
    # C-087
    '{"results": [1, 2, like("numpy", "int64")()]}':
        ("$.results[2]", "numpy.int64", "a numpy.int64 is not JSON", _TOLIST),
    'like("numpy", "ndarray")()': ("$", "numpy.ndarray", "a numpy.ndarray is not JSON", _TOLIST),
    'like("pandas.core.frame", "DataFrame")()':
        ("$", "pandas.core.frame.DataFrame", "a pandas.core.frame.DataFrame is not JSON", _RECORDS),
    'like("pandas.core.series", "Series")()':
        ("$", "pandas.core.series.Series", "a pandas.core.series.Series is not JSON", _TOLIST),
    'like("pandas", "Timestamp", datetime.datetime)(2025, 1, 2)':
        ("$", "pandas.Timestamp", "a pandas.Timestamp is not JSON", _ISO),
    "datetime.datetime(2025, 1, 2)": ("$", "datetime.datetime", "a datetime.datetime is not JSON", _ISO),
    "datetime.date(2025, 1, 2)": ("$", "datetime.date", "a datetime.date is not JSON", _ISO),
    "datetime.time(1)": ("$", "datetime.time", "a datetime.time is not JSON", _ISO),
    "datetime.timedelta(1)":
        ("$", "datetime.timedelta", "a datetime.timedelta is not JSON", "call .total_seconds() on it"),
    "{1, 2}": ("$", "set", "a set is not JSON", "sorted(x) or list(x)"),
    "frozenset()": ("$", "frozenset", "a frozenset is not JSON", "sorted(x) or list(x)"),
    "1j": ("$", "complex", "a complex is not JSON", "[x.real, x.imag]"),
    'decimal.Decimal("1.5")': ("$", "decimal.Decimal", "a decimal.Decimal is not JSON", "float(x) or str(x)"),
    "uuid.UUID(int=0)": ("$", "uuid.UUID", "a uuid.UUID is not JSON", "str(x)"),
    'like("pathlib", "PosixPath", pathlib.PurePosixPath)()':
        ("$", "pathlib.PosixPath", "a pathlib.PosixPath is not JSON", "str(x)"),
    "Color.RED": ("$", "Color", "a Color is not JSON", "return its .value"),
    "Row(1)": ("$", "Row", "a Row is not JSON", "dataclasses.asdict(x)"),
    'like("pydantic.main", "User", model_dump=None)()':
        ("$", "pydantic.main.User", "a pydantic.main.User is not JSON", "call .model_dump() on it"),
    "range(3)": ("$", "range", "a range is not JSON", "list(x)"),
    "count()": ("$", "generator", "a generator is not JSON", "list(x)"),
    "map(str, [])": ("$", "map", "a map is not JSON", "list(x)"),
    "{}.keys()": ("$", "dict_keys", "a dict_keys is not JSON", "list(x)"),
    "iter([])": ("$", "list_iterator", "a list_iterator is not JSON", "list(x)"),
    "later_on": ("$", "coroutine", "a coroutine is not JSON", "await it"),
    "collections.deque()": ("$", "collections.deque", "a collections.deque is not JSON", "list(x)"),
    # C-088
    '{"mean": float("nan")}': ("$.mean", "float", "nan is not a number in JSON", "replace it with None"),
    'float("inf")': ("$", "float", "inf is not a number in JSON", "replace it with None"),
    '[-float("inf")]': ("$[0]", "float", "-inf is not a number in JSON", "replace it with None"),
    'like("numpy", "float64", float)("nan")':
        ("$", "numpy.float64", "nan is not a number in JSON", "replace it with None"),
    "cycle()": ("$.children[0]", "dict", "a dict contains itself", None),
    "(lambda x: (x.append(x), x)[1])([])": ("$[0]", "list", "a list contains itself", None),
    '{"rows": {(1, 2): 3}}': ("$.rows", "tuple", "a tuple as a key is not JSON", "str(key)"),
    '{b"k": 1}': ("$", "bytes", "a bytes as a key is not JSON", "str(key)"),
    '{float("nan"): 1}': ("$", "float", "nan is not a number in JSON", "replace it with None"),
    '{"a": {1: 0, "1": 0}}': ("$.a", "dict", 'two keys become the same string "1"', None),
    "{10**5000: 1}": ("$", "int", "an integer of so many digits cannot be a key", "hex(n)"),
    "2**64": ("$", "int", _LOST, "str(n)"),
    '{"n": -2**63 - 1}': ("$.n", "int", _LOST, "str(n)"),
    "10**5000": ("$", "int", _LOST, "str(n)"),
    "nested(121)": ("$" + "[0]" * 120, "list", "it is nested deeper than 120 levels", None),
    r'{"text": "ab\ud800"}': ("$.text", "str", _HALF.format(2), _MEND),
    r'[{"\udc00": 1}]': ("$[0]", "str", _HALF.format(0), _MEND),
    # a path can be read whatever the keys are
    '{"two words": {"é": {"": object()}}}': ('$["two words"].é[""]', "object", "an object is not JSON", _ANY),
    '{"x" * 100: object()}': ('$["' + "x" * 60 + '..."]', "object", "an object is not JSON", _ANY),
    # user code has no say in how its values are read
    "SpoofsDict()": ("$", "SpoofsDict", "a SpoofsDict is not JSON", _ANY),
    "EvilMeta()": ("$", "EvilMeta", "an EvilMeta is not JSON", _ANY),
    "EvilRepr()": ("$", "EvilRepr", "an EvilRepr is not JSON", _ANY),
    '{EvilKey("a"): 1, EvilKey("a"): 2}': ("$", "dict", 'two keys become the same string "a"', None),
    "EvilInt(2**64)": ("$", "EvilInt", _LOST, "str(n)"),
    "EvilFloat('nan')": ("$", "EvilFloat", "nan is not a number in JSON", "replace it with None"),
    r'EvilStr("\ud800")': ("$", "str", _HALF.format(0), _MEND),
}


def refusal_of(value: Any, limit: int = MEBIBYTE) -> dict[str, Any]:
    try:
        return {"text": strict_json(value, limit)}
    except NotJson as refusal:
        return refusal.as_dict()


class Codec(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls) -> None:
        cls.names = {"__name__": "__main__"}
        exec(_MAKE, cls.names)
        cls.addClassCleanup(cls.names["later_on"].close)

    # proves C-073, C-074, C-075, C-076, C-077, C-078, C-079, C-080, C-081
    # proves C-082, C-083, C-084, C-085, C-086, C-087, C-088, W-023
    def test_t45_result_codec_golden(self):
        for source, text in JSON.items():
            with self.subTest(source):
                written = strict_json(eval(source, self.names), MEBIBYTE)
                self.assertEqual(written.decode(), text)
                json.loads(written, parse_constant=self.fail)
        for source, (path, kind, problem, fix) in NOT_JSON.items():
            with self.subTest(source):
                expected = {"path": path, "type": kind, "problem": problem, "fix": fix}
                self.assertEqual(refusal_of(eval(source, self.names)), expected)

    # proves C-088
    def test_keys_are_written_as_the_standard_library_writes_them(self):
        for key in (0, -7, 10**30, 1.0, 1e100, -0.0, True, False, None, "1", "true"):
            self.assertEqual(strict_json({key: 0}, MEBIBYTE).decode(), json.dumps({key: 0}, separators=(",", ":")))

    def test_a_value_up_to_its_limit_passes_and_one_byte_more_is_refused_by_its_size(self):
        for value in ("x" * 98, ["é" * 24, "é" * 22 + "x"], {1: "x" * 92}, [0] * 48 + [10]):
            self.assertEqual(len(strict_json(value, 100)), 100)
            self.assertEqual(refusal_of(value, 99), {
                "path": "$", "type": None, "problem": "the value is larger than its limit of 99 bytes as JSON",
                "fix": "return a part of it, or write it to a file", "too_large": True,
            })

    def test_shared_parts_that_would_unfold_endlessly_are_given_up_quickly(self):
        for twice in (lambda x: [x, x], lambda x: {1: x, 2: x}):
            value = "ab"
            for _ in range(100):
                value = twice(value)
            started = time.monotonic()
            self.assertTrue(refusal_of(value)["too_large"])
            self.assertLess(time.monotonic() - started, 5)

    def test_a_large_cycle_is_called_a_cycle(self):
        value = {"name": "x" * 10_000}
        value["self"] = value
        self.assertEqual(refusal_of(value)["problem"], "a dict contains itself")

    def test_what_a_class_is_called_stays_short(self):
        kind = type("x" * 100_000, (), {"__module__": "y" * 100_000})
        self.assertLess(len(json.dumps(refusal_of(kind()))), 1000)
        deep = kind()
        for _ in range(100):
            deep = {"k" * 1000: deep}
        self.assertLess(len(json.dumps(refusal_of(deep))), 2000)


class Values(RunnerTest):
    def test_what_is_json_already_comes_out_as_it_is(self):
        value = {"a": [1, 2.5, "é", None, True], "b": {"c": 2**64 - 1}}
        self.assertEqual(self.value_of(repr(value)), value)

    def test_what_is_not_json_has_no_value_but_a_reason(self):
        done = self.run_cell("{'rows': [{1}]}").done
        reason = {"path": "$.rows[0]", "type": "set", "problem": "a set is not JSON", "fix": "sorted(x) or list(x)"}
        self.assertEqual(done, {"ev": "done", "error": None, "exit_code": None, "value_error": reason})

    def test_a_value_over_its_limit_is_left_out(self):
        self.assertIn("value", self.run_cell("'x' * 90", value_limit=100).done)
        self.assertTrue(self.run_cell("'x' * 100", value_limit=100).done["value_error"]["too_large"])

    # proves C-082, C-083, C-084, C-085, C-086, C-087, C-088, W-023
    def test_what_a_tool_returns_is_refused_in_the_same_words_and_harms_nothing(self):
        for source in (
            '{"a": [Plain()]}', "handle", "sys.__stdout__", 'b"binary"', "cycle()", "EvilMeta()", "{}.keys()",
            'float("inf")', 'like("cognite.client.assets", "Asset")()', '{"rows": {(1, 2): 3}}',
        ):
            done = self.call(f"{_MAKE}\ndef run(): return {source}", "run").done
            path, kind, problem, fix = NOT_JSON[source]
            reason = {"path": path, "type": kind, "problem": problem, "fix": fix}
            self.assertEqual(done, {"ev": "done", "error": None, "exit_code": None, "value_error": reason})
        self.assert_still_works()

    # proves C-081, C-088
    def test_depth_is_no_matter_of_the_recursion_limit(self):
        code = """
            import sys
            def handle():
                x = 1
                for _ in range(%d): x = %s
                sys.setrecursionlimit(60)
                return x
        """
        value = self.result_of(code % (120, "[x]"))
        self.assertEqual(strict_json(value, MEBIBYTE).decode(), "[" * 120 + "1" + "]" * 120)
        self.assertEqual(len(json.dumps(self.result_of(code % (120, "{1: x}")))), 1 + 120 * len('{"1": }'))
        for part in ("[x]", "{1: x}", "(x,)"):
            for depth in (121, 500, 100_000):
                problem = self.call(code % (depth, part)).done["value_error"]["problem"]
                self.assertEqual(problem, "it is nested deeper than 120 levels")
        self.assert_still_works()


class RealTypes(unittest.TestCase):
    """The look-alikes of the golden table, in the flesh."""

    def test_numpy_and_pandas_are_told_by_what_they_are(self):
        if importlib.util.find_spec("pandas") is None:
            self.skipTest("pandas is not installed")
        import numpy
        import pandas
        for value, fix in (
            (numpy.int64(1), _TOLIST),
            (numpy.bool_(True), _TOLIST),
            (numpy.array([1]), _TOLIST),
            (pandas.DataFrame(), _RECORDS),
            (pandas.Series([1]), _TOLIST),
            (pandas.RangeIndex(1), _TOLIST),
            (pandas.Timestamp(0), _ISO),
            (pandas.NaT, "replace it with None"),
            (pandas.NA, "replace it with None"),
        ):
            refused = refusal_of([value])
            name = f"{type(value).__module__}.{type(value).__qualname__}"  # which moves from version to version
            self.assertEqual((refused["path"], refused["type"], refused["fix"]), ("$[0]", name, fix))
        self.assertEqual(strict_json([numpy.float64(1.5), numpy.str_("a")], MEBIBYTE), b'[1.5,"a"]')
