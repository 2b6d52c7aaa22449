"""A tool is a module of its own; the host calls one function of it and gets what that returns."""

import os
import tempfile
import time

from tests.harness import RunnerTest


class Calls(RunnerTest):
    # proves C-073, C-074, C-075, C-076, C-077, C-078, C-079, W-024
    def test_what_the_function_returns_is_the_value(self):
        values = ["Success message", 42, 3.14159, True, {"a": [1, {"b": None}]}, ["x", "y"], [{"id": 1}], {"ok": True}]
        for value in values:
            done = self.call(f"def handle():\n    return {value!r}").done
            self.assertEqual(done, {"ev": "done", "error": None, "exit_code": None, "value": value})

    # proves C-080, C-103, W-027
    def test_what_is_printed_is_output_and_never_the_value(self):
        reply = self.call("""
            import sys
            def handle():
                print("one")
                print("two", file=sys.stderr)
                print('{"value": 3}', end="")
        """)
        self.assertEqual(reply.printed, [("stdout", "one\n"), ("stderr", "two\n"), ("stdout", '{"value": 3}')])
        self.assertEqual(reply.done, {"ev": "done", "error": None, "exit_code": None, "value": None})

    def test_an_expression_shows_nothing_and_display_still_does(self):
        reply = self.call("1\ndef handle():\n    display('shown')\n    2")
        self.assertEqual([(r["data"]["text/plain"], r["main"]) for r in reply.results], [("'shown'", False)])

    def test_a_module_without_the_function_says_that_it_is_missing(self):
        missing = {"ev": "done", "error": None, "exit_code": None, "entry_missing": True}
        for code in ("", "def Handle(): pass", "class A:\n    def handle(self): pass", "handle = 3"):
            self.assertEqual(self.call(code).done, missing)
        self.assertEqual(self.call("def handle(): pass", "run").done, missing)

    def test_a_syntax_error_is_told_as_in_a_cell(self):
        code = "def handle(:\n    pass"
        self.assertEqual(self.call(code, name="<cell 1>").error, self.run_cell(code).error)
        self.assertTrue(self.call("def handle(): pass\0").error["syntax"])

    def test_awaiting_at_the_top_level_is_no_python(self):
        error = self.call("import asyncio\nawait asyncio.sleep(0)\ndef handle(): pass").error
        self.assertEqual((error["type"], error["syntax"]), ("SyntaxError", True))
        self.assertIn("'await' outside function", error["message"])

    # proves C-112, C-113, C-114, W-029
    def test_an_error_is_told_with_type_message_and_the_users_frames_alone(self):
        code = """
            def check(value):
                if value < 0:
                    raise ValueError("The value must be non-negative.")
                if value > 1000:
                    raise ValueError("The value exceeds the maximum allowed limit of 1000.")

            def handle(value):
                check(value)
                return value * 2
        """
        error = self.call(code, keywords={"value": -1}).error
        self.assertEqual((error["type"], error["message"]), ("ValueError", "The value must be non-negative."))
        quoted = [line for line in error["traceback"].splitlines() if set(line.strip()) - set("^~ ")]
        self.assertEqual(quoted, [
            "Traceback (most recent call last):",
            '  File "tool.py", line 8, in handle',
            "    check(value)",
            '  File "tool.py", line 3, in check',
            '    raise ValueError("The value must be non-negative.")',
            "ValueError: The value must be non-negative.",
        ])
        error = self.call(code, keywords={"value": 1001}).error
        self.assertEqual(error["message"], "The value exceeds the maximum allowed limit of 1000.")
        self.assertEqual(self.result_of(code, keywords={"value": 1000}), 2000)
        self.assertEqual(self.result_of(code, keywords={"value": 0}), 0)

    def test_an_exception_class_of_the_tool_is_named_without_its_module(self):
        code = "class TooMuch(Exception): pass\ndef handle(): raise {}"
        error = self.call(code.format("TooMuch('belljar_tool.x')")).error
        self.assertEqual(error["type"], "TooMuch")
        self.assertTrue(error["traceback"].endswith("\nTooMuch: belljar_tool.x\n"), error["traceback"])
        traceback = self.call(code.format("ExceptionGroup('g', [TooMuch(1)])")).traceback
        self.assertIn("| TooMuch: 1\n", traceback)
        self.assertNotIn("belljar_tool", traceback)

    def test_an_error_of_the_module_itself_is_told_and_the_function_not_called(self):
        reply = self.call("x = 1 / 0\ndef handle(): print('called')")
        self.assertEqual((reply.error["type"], reply.stdout), ("ZeroDivisionError", ""))
        self.assertIn('File "tool.py", line 1, in <module>', reply.traceback)

    def test_leaving_gives_an_exit_code(self):
        done = self.call("import sys\ndef handle(): sys.exit(3)").done
        self.assertEqual(done, {"ev": "done", "error": None, "exit_code": 3})

    def test_a_value_over_its_limit_is_refused(self):
        code = "def handle(): return 'x' * 98"
        self.assertIn("value", self.call(code, value_limit=100).done)
        self.assertTrue(self.call(code, value_limit=99).done["value_error"]["too_large"])

    def test_an_interrupt_ends_the_call_and_its_finally_runs(self):
        for call in ("def handle():\n    {}", "import asyncio\nasync def handle():\n    {}"):
            body = "try:\n        print('in')\n        open('mark', 'w').close()\n        while True: {}\n    finally: print('out')"
            wait = "await asyncio.sleep(0.01)" if "async" in call else "pass"
            self.runner.start_call(call.format(body.format(wait)))
            self.runner.wait_for_mark()
            self.runner.interrupt()
            reply = self.runner.collect()
            self.assertEqual((reply.error["type"], reply.stdout), ("KeyboardInterrupt", "in\nout\n"))
            self.assertIn('File "tool.py"', reply.traceback)
        self.assert_still_works()

    def test_a_forked_child_ends_like_a_script(self):
        reply = self.call("""
            import os
            def handle():
                pid = os.fork()
                if pid == 0:
                    return print("child")
                os.waitpid(pid, 0)
                return "parent"
        """)
        self.assertEqual((reply.stdout, reply.done["value"]), ("child\n", "parent"))

    def test_figures_that_were_made_are_shown(self):
        try:
            import matplotlib.pyplot  # noqa: F401  before the fork, so that the runner has it
        except ImportError:
            self.skipTest("matplotlib is not installed")
        reply = self.call("""
            import matplotlib
            matplotlib.use("agg")
            import matplotlib.pyplot as plt
            def handle():
                plt.plot([1, 2])
        """)
        self.assertEqual((reply.error, ["image/png" in r["data"] for r in reply.results]), (None, [True]))


class Module(RunnerTest):
    def test_a_main_block_does_not_run(self):
        reply = self.call("def handle(): return __name__\nif __name__ == '__main__':\n    print('main')")
        self.assertEqual((reply.stdout, reply.done["value"]), ("", "belljar_tool"))

    def test_the_names_of_a_session_and_of_a_tool_do_not_mix(self):
        self.run_cell("x = 'of the session'")
        self.assertEqual(self.result_of("x = 1\ndef handle(): return sorted(n for n in globals() if n[0] != '_')"),
                         ["handle", "x"])
        self.assertEqual(self.value_of("[x, 'handle' in globals()]"), ["of the session", False])

    def test_each_call_has_a_fresh_module(self):
        code = "count = 0\ndef handle():\n    global count\n    count += 1\n    return count"
        self.assertEqual([self.result_of(code), self.result_of(code)], [1, 1])

    def test_dataclasses_pickle_and_type_hints_find_the_module(self):
        self.assertEqual(self.result_of("""
            from __future__ import annotations
            import dataclasses, pickle, typing

            @dataclasses.dataclass
            class Row:
                x: int
                other: Row | None = None

            def handle():
                hints = typing.get_type_hints(Row)
                return [pickle.loads(pickle.dumps(Row(1))) == Row(1), hints["x"] is int]
        """), [True, True])

    def test_a_pool_runs_functions_of_a_tool(self):
        self.assertEqual(self.result_of("""
            from concurrent.futures import ProcessPoolExecutor
            import multiprocessing
            def twice(n): return 2 * n
            def handle():
                with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
                    return list(pool.map(twice, [1, 2]))
        """), [2, 4])

    def test_the_source_can_be_read_and_no_file_is_written(self):
        value = self.result_of("import inspect, os\ndef handle(): return [inspect.getsource(handle), os.listdir('.')]")
        self.assertEqual(value, ["def handle(): return [inspect.getsource(handle), os.listdir('.')]\n", []])

    def test_annotations_of_the_runner_do_not_leak_into_a_tool(self):
        self.assertEqual(self.result_of("def handle(x: 1 + 1 = 0): return handle.__annotations__"), {"x": 2})

    def test_variables_are_set_for_the_call_and_put_back(self):
        self.run_cell("import os\nos.environ['KEPT'] = 'before'\nos.environ.pop('TOKEN', None)")
        code = "import os\nseen = os.environ['TOKEN']\ndef handle():\n    {}\n    return [seen, os.environ.get('KEPT')]"
        variables = {"TOKEN": "s3cret", "KEPT": "during"}
        for body in ("pass", "os.environ.clear()", "os.environ['TOKEN'] = 'changed'", "1 / 0", "raise SystemExit",
                     "__import__('sys').setrecursionlimit(30)"):
            done = self.call(code.format(body), variables=variables).done
            if body == "pass":
                self.assertEqual(done["value"], ["s3cret", "during"])
            self.assertEqual(self.value_of("[os.environ.get('TOKEN'), os.environ['KEPT']]"), [None, "before"], body)
            self.assertEqual(self.value_of("os.getenv('TOKEN')"), None)


class Arguments(RunnerTest):
    def test_keywords_arrive_by_name_and_positional_ones_as_they_are(self):
        code = "def handle(a, b=2, *, c=3): return [a, b, c]"
        self.assertEqual(self.result_of(code, keywords={"c": 9, "a": 1}), [1, 2, 9])
        self.assertEqual(self.result_of(code, positional=[{"in": 1}]), [{"in": 1}, 2, 3])

    # proves W-024
    def test_the_single_input_of_run_is_passed_by_position_whatever_its_name(self):
        self.assertEqual(self.result_of("def run(anything): return anything", "run", positional=[{"x": 1}]), {"x": 1})

    # proves C-033
    def test_positional_only_and_keyword_only_parameters_are_ordinary_ones(self):
        code = "def handle(a, b=20, c=30, /, d=40, *, e=50): return [a, b, c, d, e]"
        for keywords, expected in (
            ({"a": 1}, [1, 20, 30, 40, 50]),
            ({"e": 5, "d": 4, "c": 3, "b": 2, "a": 1}, [1, 2, 3, 4, 5]),
            ({"a": 1, "c": 3}, [1, 20, 3, 40, 50]),
            ({"a": None, "c": None, "d": None}, [None, 20, None, None, 50]),
        ):
            self.assertEqual(self.result_of(code, keywords=keywords), expected)
        self.assertEqual(self.result_of(code, positional=[1], keywords={"c": 3}), [1, 20, 3, 40, 50])

    def test_a_missing_argument_fails_as_python_lets_it_fail(self):
        error = self.call("def handle(a, b, /): pass", keywords={"b": 1}).error
        self.assertEqual(error["type"], "TypeError")
        self.assertIn("positional-only", error["message"])

    # proves C-033
    def test_positional_only_parameters_are_found_behind_decorators_and_in_methods(self):
        self.assertEqual(self.result_of("""
            import functools
            def traced(function):
                @functools.wraps(function)
                def wrapper(*args, **kwargs):
                    return ["traced", *function(*args, **kwargs)]
                return wrapper
            @traced
            def handle(a, b=2, /, c=3): return [a, b, c]
        """, keywords={"a": 1, "c": 4}), ["traced", 1, 2, 4])
        method = "class T:\n    def m(self, a=1, b=2, /): return [a, b]\nhandle = T().m"
        self.assertEqual(self.result_of(method, keywords={"b": 5}), [1, 5])

    def test_anything_that_can_be_called_is_a_function(self):
        for code in ("handle = dict", "import functools\nhandle = functools.partial(dict)",
                     "class C:\n    def __call__(self, **k): return k\nhandle = C()"):
            self.assertEqual(self.result_of(code, keywords={"a": 1}), {"a": 1})

    def test_dates_become_dates(self):
        self.assertEqual(self.result_of("""
            import datetime
            def handle(start, end, zoned, others):
                assert type(start) is datetime.datetime
                kinds = [type(other).__name__ for other in others]
                return [(end - start).total_seconds(), start.tzinfo, zoned.isoformat(), kinds]
        """, keywords={
            "start": "2025-01-01T00:00:00", "end": "2025-01-01T12:00:00", "zoned": "2025-01-01T12:00:00+00:00",
            "others": ["2025-01-02", None],
        }, conversions={
            "start": "datetime", "end": "datetime", "zoned": "datetime", "others": {"list": "datetime"},
            "absent": "datetime",
        }), [43200.0, None, "2025-01-01T12:00:00+00:00", ["datetime", "NoneType"]])

    def test_plans_reach_into_lists_objects_and_classes_of_the_tool(self):
        code = """
            import dataclasses, datetime
            @dataclasses.dataclass
            class Event:
                name: str
                at: datetime.datetime | None = None
            @dataclasses.dataclass
            class Day:
                events: list[Event]
            def handle(day, by_name, loose):
                return [repr(day.events[0].at.year), type(day).__name__, [type(e).__name__ for e in day.events],
                        day.events[1].at, by_name["x"].month, loose["at"].day, loose["at2"], sorted(loose)]
        """
        event = {"dataclass": "Event", "fields": {"at": "datetime"}}
        value = self.result_of(code, keywords={
            "day": {"events": [{"name": "a", "at": "2025-02-03T00:00:00"}, {"name": "b"}]},
            "by_name": {"x": "2025-02-03T00:00:00"},
            "loose": {"at": "2025-02-03T00:00:00", "at2": "2025", "more": 1},
        }, conversions={
            "day": {"dataclass": "Day", "fields": {"events": {"list": event}}},
            "by_name": {"values": "datetime"},
            "loose": {"fields": {"at": "datetime", "absent": "datetime"}},
        })
        self.assertEqual(value, ["2025", "Day", ["Event", "Event"], None, 2, 3, "2025", ["at", "at2", "more"]])

    def test_a_node_becomes_the_class_of_the_sdk(self):
        with tempfile.TemporaryDirectory() as sdk:
            package = os.path.join(sdk, "cognite/client/data_classes")
            os.makedirs(package)
            with open(os.path.join(package, "data_modeling.py"), "w") as module:
                module.write("import collections\nNodeId = collections.namedtuple('NodeId', 'space external_id')\n")
            code = f"""
                import sys
                sys.path.append({sdk!r})
                def handle(n): return [type(n).__name__, n.space, n.external_id]
            """
            node = {"space": "my-space", "externalId": "asset-123"}
            value = self.result_of(code, keywords={"n": node}, conversions={"n": "node_id"})
        self.assertEqual(value, ["NodeId", "my-space", "asset-123"])

    def test_a_conversion_that_fails_is_an_error_of_the_tool(self):
        code = """
            import dataclasses
            @dataclasses.dataclass
            class P:
                x: int
                def __post_init__(self):
                    if self.x < 0: raise ValueError("x is negative")
            def handle(p): return p.x
        """
        plan = {"p": {"dataclass": "P", "fields": {}}}
        self.assertEqual(self.result_of(code, keywords={"p": {"x": 1}}, conversions=plan), 1)
        error = self.call(code, keywords={"p": {"x": -1}}, conversions=plan).error
        self.assertEqual((error["type"], error["message"]), ("ValueError", "x is negative"))
        self.assertIn('File "tool.py", line 6, in __post_init__', error["traceback"])
        self.assertNotIn("belljar_runner", error["traceback"])
        error = self.call("def handle(d): pass", keywords={"d": "soon"}, conversions={"d": "datetime"}).error
        self.assertEqual((error["type"], error["traceback"][:11]), ("ValueError", "ValueError:"))
        error = self.call("def handle(p): pass", keywords={"p": {}}, conversions=plan).error
        self.assertEqual((error["type"], error["message"]), ("NameError", "name 'P' is not defined"))


class Awaiting(RunnerTest):
    # proves C-091, C-092, W-026
    def test_an_async_function_is_awaited(self):
        code = "import asyncio\nasync def {}(value):\n    await asyncio.sleep(0.1)\n    return value * 2"
        for name in ("handle", "run"):
            started = time.monotonic()
            self.assertEqual(self.result_of(code.format(name), name, keywords={"value": 21}), 42)
            self.assertGreaterEqual(time.monotonic() - started, 0.1)

    # proves C-092
    def test_awaits_of_the_librarys_coroutines_work(self):
        self.assertEqual(self.result_of("""
            import asyncio
            async def part(n):
                await asyncio.sleep(0.01)
                return n
            async def handle():
                async with asyncio.timeout(5):
                    several = await asyncio.gather(part(1), asyncio.to_thread(sum, [1, 2]))
                async with asyncio.TaskGroup() as group:
                    task = group.create_task(part(3))
                return [*several, task.result()]
        """), [1, 3, 3])

    # proves C-093
    def test_an_error_in_an_async_function_is_told_exactly_as_in_a_sync_one(self):
        code = "def check():\n    raise ValueError('no')\n\n{} handle():\n    check()"
        plain, awaited = (self.call(code.format(kind)).error for kind in ("def", "async def"))
        self.assertEqual(plain, awaited)

    # proves C-094
    def test_a_sync_function_may_run_a_loop_of_its_own(self):
        code = "import asyncio\nasync def f(): return 3\n{}def handle(): return {}"
        self.assertEqual(self.result_of(code.format("", "asyncio.run(f())")), 3)
        self.assertEqual(self.result_of(code.format("async ", "await f()")), 3)
        self.assertEqual(self.result_of(code.format("", "asyncio.run(f())")), 3)

    def test_whatever_can_be_awaited_is(self):
        code = "class A:\n    def __await__(self):\n        yield from ()\n        return 5\n"
        self.assertEqual(self.result_of(code + "def handle(): return A()"), 5)
        self.assertEqual(self.result_of("import types\n@types.coroutine\ndef handle():\n    yield\n    return 6"), 6)

    def test_a_generator_is_not_awaited(self):
        self.assertEqual(self.call("def handle(): yield 1").done["value_error"]["type"], "generator")
        self.assertEqual(self.call("async def handle(): yield 1").done["value_error"]["type"], "async_generator")


class Rehearsals(RunnerTest):
    def test_a_warm_up_leaves_no_tool_behind(self):
        self.runner.send(op="warm")
        self.runner.collect()
        look = "import sys, linecache\n['belljar_tool' in sys.modules, '<warm-up>' in linecache.cache]"
        self.assertEqual(self.value_of(look), [False, False])
        self.assertEqual(self.result_of("def handle(): return 1"), 1)
