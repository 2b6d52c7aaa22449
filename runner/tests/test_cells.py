"""A cell is like a page of a notebook: names stay, the last expression shows, everything else is plain Python."""

import os
import sys
import tempfile
import unittest
from unittest import mock

from belljar_runner import session
from tests.harness import Runner, RunnerTest


class Cells(RunnerTest):
    def test_a_name_set_in_one_cell_is_there_in_the_next(self):
        self.run_cell("x = 20")
        self.assertEqual(self.value_of("x + 1"), 21)

    def test_the_last_expression_is_the_value_and_the_main_result(self):
        reply = self.run_cell("y = [1, 2]\ny")
        self.assertEqual(reply.done, {"ev": "done", "error": None, "exit_code": None, "value": [1, 2]})
        self.assertEqual(reply.results, [{"ev": "result", "data": {"text/plain": "[1, 2]"}, "main": True}])

    def test_none_is_a_value_but_nothing_to_show(self):
        reply = self.run_cell("print(1)")
        self.assertEqual((reply.stdout, reply.results, reply.done["value"]), ("1\n", [], None))

    def test_a_cell_that_ends_in_a_statement_has_no_value(self):
        self.assertNotIn("value", self.run_cell("x = 1").done)

    def test_an_empty_cell_succeeds(self):
        for code in ("", "\n", "# nothing"):
            self.assertEqual(self.run_cell(code).done, {"ev": "done", "error": None, "exit_code": None})

    def test_underscore_keeps_the_last_value_that_was_not_none(self):
        self.run_cell("'kept'")
        self.run_cell("None")
        self.assertEqual(self.value_of("_"), "kept")

    def test_a_script_shows_no_last_expression(self):
        reply = self.run_cell("1 + 1", show_last=False)
        self.assertEqual((reply.results, "value" in reply.done), ([], False))

    def test_a_script_sees_its_arguments_and_its_file_for_that_run_only(self):
        path = self.runner.workspace + "/tool.py"
        reply = self.run_cell(
            """
            import sys
            print(sys.argv, __file__, sys.path[0])
        """, show_last=False, argv=["tool.py", "-v"], name=path
        )
        self.assertEqual(reply.stdout, f"['tool.py', '-v'] {path} {self.runner.workspace}\n")
        self.assertEqual(self.value_of("[sys.argv, '__file__' in globals(), sys.path[0]]"), [[""], False, ""])

    def test_a_script_is_started_in_the_directory_that_is_named(self):
        with tempfile.TemporaryDirectory() as root:
            root = os.path.realpath(root)
            reply = self.run_cell(
                "import os, sys; print(os.getcwd(), sys.argv, __file__, sys.path[0])",
                show_last=False, argv=["scripts/tool.py"], directory=root, name=root + "/scripts/tool.py"
            )
        expected = f"{root} ['scripts/tool.py'] {root}/scripts/tool.py {root}/scripts\n"
        self.assertEqual(reply.stdout, expected)

    def test_a_directory_that_is_not_there_is_an_error_of_the_script(self):
        reply = self.run_cell("print('ran')", show_last=False, argv=["tool.py"], directory="/absent")
        self.assertEqual((reply.stdout, reply.done["error"]["type"]), ("", "FileNotFoundError"))

    def test_main_is_the_namespace_of_cells(self):
        self.assertEqual(self.value_of("__name__"), "__main__")
        self.assertTrue(self.value_of("import sys\nglobals() is sys.modules['__main__'].__dict__"))

    def test_nothing_of_the_runner_is_in_the_namespace(self):
        names = set(self.value_of("list(globals())"))
        self.assertEqual(names, {"__name__", "__doc__", "__package__", "__loader__", "__spec__", "__builtins__"})

    def test_a_module_written_into_the_working_directory_can_be_imported(self):
        self.run_cell("open('helper.py', 'w').write('def twice(n): return 2 * n')")
        self.assertEqual(self.value_of("import helper\nhelper.twice(4)"), 8)

    def test_a_future_import_holds_for_later_cells(self):
        self.run_cell("from __future__ import annotations")
        self.assertEqual(self.value_of("""
            def f(x: no_such_name): pass
            f.__annotations__
        """), {"x": "no_such_name"})

    def test_annotations_of_the_runner_do_not_leak_into_cells(self):
        self.assertEqual(self.value_of("def f(x: 1 + 1): pass\nf.__annotations__"), {"x": 2})

    def test_classes_of_a_cell_can_be_pickled(self):
        self.run_cell("import pickle, dataclasses\n@dataclasses.dataclass\nclass P:\n    x: int")
        self.assertTrue(self.value_of("pickle.loads(pickle.dumps(P(3))) == P(3)"))

    def test_type_hints_of_a_cell_resolve(self):
        self.run_cell("import typing\nclass A:\n    other: 'A'")
        self.assertTrue(self.value_of("typing.get_type_hints(A)['other'] is A"))

    def test_the_source_of_a_function_from_an_earlier_cell_can_be_read(self):
        self.run_cell("def greet():\n    return 'hi'")
        source = self.value_of("import inspect\ninspect.getsource(greet)")
        self.assertEqual(source, "def greet():\n    return 'hi'\n")

    def test_doctest_runs_on_functions_of_a_cell(self):
        reply = self.run_cell('''
            def one():
                """
                >>> one()
                1
                """
                return 1
            import doctest
            doctest.testmod()
        ''')
        self.assertEqual(reply.main["text/plain"], "TestResults(failed=0, attempted=1)", reply)

    def test_unittest_main_runs_in_a_cell(self):
        reply = self.run_cell("""
            import unittest
            class T(unittest.TestCase):
                def test(self): self.assertEqual(1, 1)
            result = unittest.main(exit=False, argv=['']).result
            result.testsRun
        """)
        self.assertEqual((reply.done.get("value"), "OK" in reply.stderr), (1, True), reply)

    def test_a_warning_about_syntax_comes_once(self):
        reply = self.run_cell("x = 1 is 1\nx")
        self.assertEqual(reply.stderr.count("SyntaxWarning"), 1, reply.stderr)

    def test_a_syntax_warning_of_the_last_expression_comes_once(self):
        expected = 1 if sys.version_info >= (3, 12) else 0  # before, Python keeps it to itself
        self.assertEqual(self.run_cell("y = 1\n'\\d'").stderr.count("Warning"), expected)

    def test_a_warm_up_leaves_no_trace(self):
        look = """
            import linecache, os, sys
            quoted = sorted(name for name in linecache.cache if not name.startswith('<cell'))
            [sorted(globals()), sorted(sys.modules), dict(os.environ), quoted]
        """
        before = self.value_of(look)
        self.runner.send(op="warm")
        reply = self.runner.collect()
        self.assertEqual((reply.printed, reply.results, reply.done["error"]), ([], [], None))
        self.assertEqual(self.value_of(look), before)


class Awaiting(RunnerTest):
    def test_a_cell_can_await_at_its_top_level(self):
        self.assertEqual(self.value_of("import asyncio\nawait asyncio.sleep(0, 'slept')"), "slept")

    def test_a_task_started_in_one_cell_can_be_awaited_in_the_next(self):
        self.run_cell("""
            import asyncio
            t = asyncio.create_task(asyncio.sleep(0.01, 5))
            await asyncio.sleep(0)
        """)
        self.assertEqual(self.value_of("await t"), 5)

    def test_asyncio_run_works_before_and_after_an_await(self):
        self.assertEqual(self.value_of("import asyncio\nasync def f(): return 3\nasyncio.run(f())"), 3)
        self.assertEqual(self.value_of("await f()"), 3)
        self.assertEqual(self.value_of("asyncio.run(f())"), 3)
        self.assertEqual(self.value_of("await f()"), 3)

    def test_async_for_and_async_with_work_at_the_top_level(self):
        code = "async def g():\n    for i in range(3): yield i\n[i async for i in g()]"
        self.assertEqual(self.value_of(code), [0, 1, 2])

    def test_settings_made_after_an_await_stay(self):
        self.run_cell("import asyncio, decimal\nawait asyncio.sleep(0)\ndecimal.getcontext().prec = 7")
        self.assertEqual(self.value_of("decimal.getcontext().prec"), 7)

    def test_an_error_in_awaited_code_shows_the_users_frames_alone(self):
        reply = self.run_cell("async def f():\n    1 / 0\nawait f()")
        self.assertEqual(reply.traceback.count("File "), 2, reply.traceback)

    def test_a_loop_closed_by_the_user_is_replaced(self):
        self.run_cell("""
            import asyncio
            loop = asyncio.get_running_loop() if False else None
            await asyncio.sleep(0)
        """)
        self.run_cell("asyncio.get_event_loop_policy().get_event_loop().close()")
        self.assertEqual(self.value_of("await asyncio.sleep(0, 1)"), 1)


class SeparateRunners(unittest.TestCase):
    def fresh(self) -> Runner:
        runner = Runner()
        self.addCleanup(runner.close)
        return runner

    def test_two_runners_never_draw_the_same_random_numbers(self):
        code = """
            import random, ssl, tempfile, uuid, multiprocessing
            key = bytes(multiprocessing.current_process().authkey)
            [random.random(), ssl.RAND_bytes(8).hex(), tempfile.mktemp(), str(uuid.uuid4()), key.hex()]
        """
        first, second = [self.fresh().run(code).done["value"] for _ in range(2)]
        self.assertFalse(set(first) & set(second), (first, second))

    def test_a_runner_that_cannot_reseed_never_says_it_is_ready(self):
        with mock.patch.object(session, "reseed", side_effect=OSError("no entropy")):
            runner = self.fresh()
        with self.assertRaises(ConnectionError) as gone:
            runner.ready
        self.assertIn("reseeding the random generators failed; the sandbox ends: OSError('no entropy')", str(gone.exception))
        self.assertEqual(runner.exit_status(), 71)


class Answers(RunnerTest):
    """A script that is asked for one thing says it by a name, by its last line, or not at all."""

    def answer(self, code: str):
        return self.runner.run(code, answer="result").done.get("value")

    # proves P-014
    def test_what_is_bound_to_the_name_goes_before_the_last_line(self):
        self.assertEqual(self.answer("result = {'a': 1}\n2"), {"a": 1})
        self.assertEqual(self.answer("2"), 2)
        self.assertIsNone(self.answer("print(1)"))
        self.assertEqual(self.answer("for i in range(3):\n    result = i"), 2)

    def test_what_an_earlier_run_has_bound_is_not_the_answer_of_this_one(self):
        self.assertEqual(self.answer("result = [1]"), [1])
        self.assertEqual(self.answer("2"), 2)
        self.assertEqual(self.answer("len(result)"), 1)
        self.assertEqual(self.answer("result = result + [2]"), [1, 2])

    def test_a_failure_has_no_answer(self):
        reply = self.runner.run("result = 1\n1/0", answer="result")
        self.assertEqual(reply.error["type"], "ZeroDivisionError")
        self.assertNotIn("value", reply.done)

    def test_an_answer_that_is_no_json_is_shown_and_explained(self):
        reply = self.runner.run("result = {1, 2}", answer="result")
        self.assertEqual(reply.results[-1]["data"]["text/plain"], "{1, 2}")
        self.assertIn("value_error", reply.done)
