"""A test of a tool that fails says what was compared; apart from that, its asserts are Python's."""

import textwrap

from tests.harness import RunnerTest, Reply


class Explained(RunnerTest):
    def outcome_of(self, code: str) -> Reply:
        return self.call(code, "test", explain_asserts=True)

    def assertion_of(self, code: str) -> dict:
        error = self.outcome_of(code).error
        self.assertEqual(error["type"], "AssertionError", error)
        return error["assertion"]

    def values_of(self, statements: str) -> list[list[str]]:
        body = textwrap.indent(textwrap.dedent(statements).strip(), "    ")
        return self.assertion_of("def test():\n" + body)["values"]


class Failures(Explained):
    # proves C-100
    def test_a_failed_assert_shows_its_message_line_source_and_values(self):
        error = self.outcome_of("""
            def handle(x): return x + 1
            expected = 42
            def test():
                result = handle(40)
                assert result == expected, f"Expected {expected}, got {result}"
        """).error
        self.assertEqual((error["type"], error["message"]), ("AssertionError", "Expected 42, got 41"))
        self.assertEqual(error["assertion"], {
            "line": 5, "source": 'assert result == expected, f"Expected {expected}, got {result}"',
            "values": [["result", "41"], ["expected", "42"]],
        })
        self.assertIn('File "tool.py", line 5, in test', error["traceback"])

    # proves C-101
    def test_a_bare_assert_shows_its_expression(self):
        error = self.outcome_of("def test():\n    items = [1, 2]\n    assert len(items) == (\n        3)").error
        self.assertEqual(error["message"], "len(items) == (\n        3)")
        self.assertEqual(error["assertion"], {
            "line": 3, "source": "assert len(items) == (", "values": [["len(items)", "2"], ["items", "[1, 2]"]],
        })

    def test_an_empty_message_is_the_users_choice(self):
        self.assertEqual(self.outcome_of("def test():\n    assert 1 > 2, ''").error["message"], "")

    def test_each_kind_of_expression_shows_what_decided_it(self):
        for statements, values in {
            "x = 3\nassert x < 2": [["x", "3"]],
            "x = 3\nassert 1 < x < 2": [["x", "3"]],
            "x = 'a'\nassert x in ('b', 'c')": [["x", "'a'"]],
            "x = 0\nassert x": [["x", "0"]],
            "x = {'k': 0}\nassert x['k']": [["x['k']", "0"], ["x", "{'k': 0}"]],
            "x = 5\nassert not x": [["x", "5"]],
            "x = 5\nassert not x == 5": [["x", "5"]],
            "a, b = 1, 2\nassert a == 1 and b == 3": [["a", "1"], ["b", "2"]],
            "a, b = 0, []\nassert a or b": [["a", "0"], ["b", "[]"]],
            "x = '5'\nassert isinstance(x, int)": [["x", "'5'"]],
            "x = [1]\nassert all(n > 1 for n in x)": [["x", "[1]"]],
            "x = [3]\nassert any(map(lambda n: n > 5, x))": [["map(lambda n: n > 5, x)", ...], ["x", "[3]"]],
            "x = {}\nassert dict(**x)": [["x", "{}"]],
            "x = ()\nassert any(*[x])": [["[x]", "[()]"], ["x", "()"]],
            "x = 'é'\nassert x.upper() == 'e', 'no'": [["x.upper()", "'É'"], ["x", "'é'"]],
            "import math\nassert math.pi == 3": [["math.pi", "3.141592653589793"]],
            "assert type(1) == str": [["type(1)", "<class 'int'>"]],
            "assert (n := 3) == 4": [["n := 3", "3"]],
            "assert False": [],
            "assert [1, -2] == []": [],
        }.items():
            seen = self.values_of(statements)
            self.assertEqual([name for name, _ in seen], [name for name, _ in values], statements)
            for (_, shown), (_, expected) in zip(seen, values):
                if expected is not ...:
                    self.assertEqual(shown, expected, statements)

    def test_what_was_not_evaluated_has_no_value(self):
        self.assertEqual(self.values_of("x = 1\nassert x == 2 and undefined == 3"), [["x", "1"]])
        self.assertEqual(self.values_of("""
            for a, b in ((1, 2), (0, 0)):
                try:
                    assert a and str(b) == "x"
                except AssertionError:
                    if not a: raise
        """), [["a", "0"], ["b", "0"]])

    def test_a_value_is_that_of_the_moment(self):
        self.assertEqual(self.values_of("x = [1]\nassert len(x) == len(x.append(2) or x)"),
                         [["len(x)", "1"], ["len(x.append(2) or x)", "2"], ["x", "[1, 2]"]])

    def test_a_huge_or_broken_value_is_survived(self):
        values = dict(self.values_of("""
            class Bad:
                def __repr__(self): raise ValueError("no")
            bad, huge = Bad(), "x" * 1_000_000
            assert bad is huge
        """))
        self.assertEqual(values["bad"], "<test.<locals>.Bad object whose repr failed: ValueError: no>")
        self.assertLess(len(values["huge"]), 600)
        many = " and ".join(f"x + {n} == {n}" for n in range(50))
        self.assertEqual(len(self.values_of(f"x = 0\nassert {many} and x")), 20)

    def test_an_assert_is_found_wherever_it_stands(self):
        for code in (
            "def test():\n    check(1)\ndef check(x):\n    assert x == 2",
            "class T:\n    def check(self, x):\n        assert x == 2\ndef test():\n    T().check(1)",
            "def test():\n    def inner(x):\n        assert x == 2\n    inner(1)",
            "def test():\n    x = 1\n    for _ in [1]:\n        if 0: pass\n        elif 1: assert x == 2",
            "def test():\n    x = 1\n    while True:\n        with open('/dev/null'): assert x == 2",
            "def test():\n    x = 1\n    try: pass\n    finally:\n        assert x == 2",
            "def test():\n    x = 1\n    try: 1 / 0\n    except ZeroDivisionError:\n        assert x == 2",
            "def test():\n    x = 1\n    match x:\n        case 1: assert x == 2",
            "def test():\n    x = 1\n    try:\n        assert x == 2\n    except AssertionError as e:\n        raise e",
            "def g(x):\n    assert (yield) == 0 or x == 2\ndef test():\n    i = g(1); next(i); i.send(3)",
            "x = 1\nassert x == 2",
            "x = 1\ndef test():\n    global x\n    assert x == 2",
            "def test():\n    x = 1\n    def f():\n        nonlocal x\n        assert x == 2\n    f()",
            "import asyncio\nasync def f(n): return n\nasync def test():\n    assert await f(1) == 2",
            "import asyncio\nasync def f(x):\n    assert x == 2\nasync def test(): await asyncio.gather(f(1), f(2))",
        ):
            values = self.assertion_of(code)["values"]
            self.assertIn("1", [value for _, value in values], code)

    def test_other_assertion_errors_are_left_as_they_are(self):
        for code in (
            "def test():\n    raise AssertionError('raised')",
            "def test():\n    x = 1\n    assert x == 1; raise AssertionError('raised')",
            "import unittest\ndef test():\n    unittest.TestCase().assertEqual(1, 2)",
            "def test():\n    exec('assert 0')",
            "class Mine(AssertionError): pass\ndef test():\n    raise Mine",
            "class T:\n    x = 1\n    assert x == 2\ndef test(): pass",
        ):
            self.assertNotIn("assertion", self.outcome_of(code).error, code)

    def test_without_the_wish_nothing_is_explained(self):
        error = self.call("def test():\n    x = 1\n    assert x == 2", "test").error
        self.assertEqual((set(error), error["message"]), ({"type", "message", "traceback", "syntax"}, ""))


class SameAsPython(Explained):
    """Each program prints the same and fails the same whether its asserts can explain themselves or not."""

    PROGRAMS = {
        "order and short-circuiting": """
            def say(x):
                print("say", x)
                return x
            def test():
                assert say(1) < say(2) <= say(2) and (say(0) or not say(0)), say("message")
                assert say(3) == say(3) or say("never")
                assert max(say(1), *[say(2)], key=say, **{"default": say(3)} if 0 else {})
                assert say(1) > say(2) > say(3), say("told")
        """,
        "an error in an operand": "def test():\n    x = 0\n    assert 1 == (\n        2 / x), 'message'",
        "an error in the message": "def test():\n    x = 0\n    assert x == 1, 2 / x",
        "a chained comparison over lines": "def test():\n    x = 1\n    assert (x ==\n        2\n        != 3)",
        "a failed bare call": "def test():\n    x = []\n    assert any(x)",
        "names of the function": """
            def test():
                x = 1
                assert x == 1 and len([x])
                print(sorted(locals()))
                try:
                    assert x == x + 1
                except AssertionError as e:
                    print(repr(e), e.args)
                assert x <= x
                print(sorted(locals()), sorted(name for name in globals() if name[0] != "_"))
                assert not x
        """,
        "names of the module": """
            x = 1
            assert x == 1 and [x]
            print([name for name in globals() if name[0] != "_"])
            def test(): assert 0
        """,
        "the body of a class": """
            import enum
            class Color(enum.Enum):
                RED = 1
                assert RED == 1
                if True:
                    assert RED + 1 == 2
                def check(self):
                    assert self.value == 2, self
            def test():
                print(list(Color), [n for n in vars(Color) if not n.isidentifier()])
                Color.RED.check()
        """,
        "what an operand held is let go": """
            import weakref
            class Thing: pass
            def test():
                thing = Thing()
                seen = weakref.ref(thing)
                assert thing == thing and seen()
                del thing
                print(seen())
                assert seen()
        """,
        "a user's walrus, comprehension, lambda and super": """
            class A:
                def f(self, n): return n
            class B(A):
                def f(self, n):
                    assert super().f(n) == n and (lambda q: q)(n) == n
                    return n
            def test():
                assert (n := B().f(3)) == 3 and n
                assert [m for m in range(n) if (last := m) >= 0] == [0, 1, 2]
                print(n, last)
                assert {m: n for m in range(2)} == {}, last
        """,
        "generators and closures": """
            def g(n):
                got = yield n
                assert got == n, got
                assert (yield "second") is None
            def test():
                i = g(1)
                print(next(i), i.send(1), list(i))
                j = g(2)
                next(j)
                j.send(5)
        """,
        "awaiting": """
            import asyncio
            async def f(n):
                await asyncio.sleep(0)
                return n
            async def ns():
                for n in range(2): yield n
            async def test():
                assert await f(1) == await f(1)
                assert [n async for n in ns()] == [0, 1]
                assert all([await f(n) async for n in ns()]), await f("message")
        """,
        "a warning of the compiler": "def test(x=1):\n    assert x is 1 or x\n    assert (x, 'always')\n    assert 0",
        "a program without asserts that fails": "def test():\n    return {}['k']",
        "a syntax error": "def test(:",
        "a recursion": "def test(n=0):\n    assert test(n + 1) == n",
        "a future import and a docstring": """
            '''doc'''
            from __future__ import annotations
            assert __doc__ == "doc"
            def test(x: undefined = 1):
                '''doc'''
                assert test.__doc__ == "doc" and test.__annotations__ == {"x": "undefined"}
                assert x == 2
        """,
    }

    def test_programs_behave_the_same(self):
        for promise, code in self.PROGRAMS.items():
            with self.subTest(promise):
                code = textwrap.dedent(code).strip()
                plain, explained = self.call(code, "test"), self.outcome_of(code)
                self.assertEqual((explained.stdout, explained.stderr), (plain.stdout, plain.stderr))
                assertion = explained.error.pop("assertion", None)
                if plain.error["message"] == "" and assertion is not None:
                    explained.error["message"] = ""  # a bare assert is told by its expression
                self.assertEqual(explained.done, plain.done)

    def test_a_long_chain_of_branches_is_no_matter_of_the_recursion_limit(self):
        for length in (900, 1500):
            branches = "".join(f"elif x == {n}: pass\n" for n in range(length))
            error = self.outcome_of(f"x = 1\nif x == -1: pass\n{branches}\nassert x == 2\ndef test(): pass").error
            self.assertEqual(error["type"], "AssertionError")
            if length == 900:  # Python takes no tree much deeper than this
                self.assertEqual(error["assertion"]["values"], [["x", "1"]])


class Tests(Explained):
    # proves C-096, C-102, C-103
    def test_passing_asserts_give_none_and_prints_come_in_order(self):
        reply = self.outcome_of("""
            def handle(x):
                print("h", x)
                return x
            def test():
                print("a")
                assert handle(1) == 1
                print("b")
        """)
        self.assertEqual((reply.stdout, reply.done["value"]), ("a\nh 1\nb\n", None))

    # proves C-097, C-106
    def test_an_async_test_may_await_the_tool(self):
        reply = self.outcome_of("""
            import asyncio
            async def handle(value):
                await asyncio.sleep(0)
                return value * 2
            async def test():
                assert await handle(21) == 42
                return "passed"
        """)
        self.assertEqual(reply.done["value"], "passed")

    # proves C-105, C-106
    def test_a_test_calls_the_tool_with_python_values_and_returns_what_it_likes(self):
        self.assertEqual(self.result_of("""
            import datetime
            def handle(when, value):
                if value < 0: raise ValueError("negative")
                return when.year + value
            def test():
                assert handle(datetime.datetime(2025, 1, 1), 1) == 2026
                try:
                    handle("invalid", -1)
                    assert False, "Should have raised ValueError"
                except ValueError:
                    pass
                return {"checked": 2}
        """, "test", explain_asserts=True), {"checked": 2})

    # proves C-105
    def test_an_error_path_that_does_not_fail_is_a_failure(self):
        error = self.outcome_of("""
            def handle(a, b): pass
            def test():
                try:
                    handle("invalid", -1)
                    assert False, "Should have raised ValueError"
                except ValueError:
                    pass
        """).error
        self.assertEqual((error["message"], error["assertion"]["line"]), ("Should have raised ValueError", 5))

    # proves C-104
    def test_any_other_exception_fails_with_type_message_and_traceback(self):
        error = self.outcome_of("def test():\n    x = {}\n    assert x['k'] == 1").error
        self.assertEqual((error["type"], error["message"], "assertion" in error), ("KeyError", "'k'", False))
        self.assertIn('File "tool.py", line 3, in test', error["traceback"])
