"""What went wrong is told as Python tells it, in the user's lines alone."""

import subprocess
import sys
import tempfile
import textwrap

from tests.harness import RunnerTest


def as_plain_python(code: str) -> str:
    """What this Python prints when the same program is a file."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as program:
        program.write(textwrap.dedent(code).strip())
        program.flush()
        printed = subprocess.run([sys.executable, program.name], capture_output=True, text=True).stderr
        return printed.replace(program.name, "<cell 1>")


class Errors(RunnerTest):
    def assert_as_in_plain_python(self, code: str) -> None:
        self.assertEqual(self.run_cell(code).traceback, as_plain_python(code))

    def test_a_simple_error(self):
        self.assert_as_in_plain_python("def f(x):\n    return 1 / x\n\nf(0)")

    def test_a_chained_error(self):
        self.assert_as_in_plain_python("""
            try:
                {}['k']
            except KeyError as e:
                raise ValueError('bad') from e
        """)

    def test_an_error_in_an_except_block(self):
        self.assert_as_in_plain_python("""
            try:
                int('x')
            except ValueError:
                undefined_name
        """)

    def test_a_group_of_errors(self):
        code = """
            def bad(n):
                raise ValueError(n)
            errors = []
            for n in range(2):
                try:
                    bad(n)
                except ValueError as e:
                    errors.append(e)
            raise ExceptionGroup('both', errors)
        """
        self.assert_as_in_plain_python(code)

    def test_a_note(self):
        self.assert_as_in_plain_python("e = ValueError('x')\ne.add_note('look here')\nraise e")

    def test_a_syntax_error_points_at_the_place(self):
        self.assert_as_in_plain_python("x = (1,\ny = 2")
        error = self.run_cell("x = (1,\ny = 2").error
        self.assertEqual((error["type"], error["syntax"]), ("SyntaxError", True))

    def test_wrong_indentation_is_a_syntax_error(self):
        error = self.run_cell("  x = 1").error
        self.assertEqual((error["type"], error["syntax"]), ("IndentationError", True))

    def test_a_null_byte_is_a_syntax_error(self):
        self.assertTrue(self.run_cell("x = 1\0").error["syntax"])

    def test_a_syntax_error_in_code_that_a_cell_runs_is_an_ordinary_error(self):
        self.assertFalse(self.run_cell("exec('x =')").error["syntax"])

    def test_a_type_is_named_with_its_module_unless_built_in(self):
        self.assertEqual(self.run_cell("import json; json.loads('x')").error["type"], "json.decoder.JSONDecodeError")
        self.assertEqual(self.run_cell("class E(Exception): pass\nraise E('m')").error["type"], "E")
        self.assertEqual(self.run_cell("[][1]").error["type"], "IndexError")

    def test_the_message_is_the_exceptions_text(self):
        self.assertEqual(self.run_cell("raise ValueError('exactly this')").error["message"], "exactly this")

    def test_frames_of_earlier_cells_show_their_source(self):
        self.run_cell("def f():\n    raise RuntimeError('late')")
        self.assertIn('File "<cell 1>", line 2, in f\n    raise RuntimeError', self.run_cell("f()").traceback)

    def test_a_huge_message_is_cut(self):
        error = self.run_cell("raise ValueError('x' * 10_000_000)").error
        self.assertLess(len(error["message"]), 17 * 1024)
        self.assertLess(len(error["traceback"]), 66 * 1024)
        self.assertTrue(error["traceback"].startswith("Traceback (most recent call last)"))

    def test_endless_recursion_is_survived(self):
        error = self.run_cell("def f(): f()\nf()").error
        self.assertEqual(error["type"], "RecursionError")
        self.assert_still_works()

    def test_endless_recursion_under_a_raised_limit_is_reported_briefly(self):
        error = self.run_cell("""
            import sys
            sys.setrecursionlimit(50_000)
            def f(n):
                if n: f(n - 1)
                else: 1 / 0
            f(20_000)
        """).error
        self.assertEqual(error["type"], "ZeroDivisionError")
        self.assertLess(len(error["traceback"]), 66 * 1024)

    def test_an_exception_whose_text_fails_is_still_reported(self):
        error = self.run_cell("""
            class E(Exception):
                def __str__(self): raise TypeError('no')
            raise E
        """).error
        self.assertEqual((error["type"], error["message"]), ("E", "<exception str() failed>"))

    def test_an_exception_outside_the_exception_tree_is_an_error_of_the_cell(self):
        self.assertEqual(self.run_cell("class Stop(BaseException): pass\nraise Stop(1)").error["type"], "Stop")
        self.assert_still_works()

    def test_lone_surrogates_in_a_message_travel(self):
        self.assertEqual(self.run_cell(r"raise ValueError('a\ud800b')").error["message"], "a?b")

    def test_a_memory_error_is_survived(self):
        self.assertEqual(self.run_cell("'x' * (1 << 62)").error["type"], "MemoryError")
        self.assert_still_works()

    def test_a_users_excepthook_is_called_as_well(self):
        self.run_cell("""
            import sys
            sys.excepthook = lambda kind, error, trace: print('hook saw', kind.__name__)
        """)
        reply = self.run_cell("1 / 0")
        self.assertEqual(reply.stdout, "hook saw ZeroDivisionError\n")
        self.assertEqual(reply.error["type"], "ZeroDivisionError")

    def test_a_failing_excepthook_changes_nothing(self):
        self.run_cell("import sys\nsys.excepthook = lambda *a: undefined")
        reply = self.run_cell("1 / 0")
        self.assertEqual(reply.error["type"], "ZeroDivisionError")
        self.assertIn("sys.excepthook failed: NameError", reply.stderr)

    def test_an_excepthook_that_exits_changes_nothing(self):
        self.run_cell("import sys\nsys.excepthook = lambda *a: sys.exit(9)")
        self.assertEqual(self.run_cell("1 / 0").error["type"], "ZeroDivisionError")
        self.assert_still_works()


class Exits(RunnerTest):
    def test_exit_codes_are_those_a_shell_would_see(self):
        statuses = {
            "sys.exit()": 0, "sys.exit(3)": 3, "sys.exit(-1)": 255,
            "exit(4)": 4, "quit()": 0, "raise SystemExit(True)": 1,
        }
        for code, status in statuses.items():
            done = self.run_cell("import sys\n" + code).done
            self.assertEqual((done["error"], done["exit_code"]), (None, status), code)
        self.assert_still_works()

    def test_exit_with_a_message_prints_it(self):
        reply = self.run_cell("import sys\nsys.exit('went wrong')")
        self.assertEqual((reply.stderr, reply.done["exit_code"]), ("went wrong\n", 1))

    def test_without_exit_there_is_no_code(self):
        self.assertIsNone(self.run_cell("1").done["exit_code"])
