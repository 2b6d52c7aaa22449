"""What is printed arrives: whole, in order, from whichever layer of the process it came."""

from tests.harness import RunnerTest
from tests.waiting import slow_peer


class Output(RunnerTest):
    def test_the_two_streams_keep_their_order(self):
        code = "import sys\nfor i in range(50):\n    print('out', i)\n    print('err', i, file=sys.stderr)"
        expected = "".join(f"out {i}\nerr {i}\n" for i in range(50))
        self.assertEqual("".join(text for _, text in self.run_cell(code).printed), expected)

    def test_a_host_that_does_not_read_costs_one_short_wait(self):
        code = """
            import resource, sys
            def waits(): return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
            before = waits()
            for i in range(100):
                print(i)
                print(i, file=sys.stderr)
            waits() - before
        """
        self.runner.start(code)
        slow_peer(0.5)
        # One wait of 20 ms is at most a thousand short sleeps; a wait for each of the lines would be a hundred times as many.
        self.assertIn(self.runner.collect().done["value"], range(1, 2_000))

    def test_text_and_bytes_on_one_stream_keep_their_order(self):
        code = r"""
            import sys
            print('a')
            sys.stdout.buffer.write(b'b\n')
            print('c', end='')
            sys.stdout.flush()
            sys.stdout.buffer.write(b'd')
        """
        self.assertEqual(self.run_cell(code).stdout, "a\nb\ncd")

    def test_a_line_without_its_end_arrives_with_the_cell(self):
        self.assertEqual(self.run_cell("print('half', end='')").stdout, "half")

    def test_lines_arrive_while_the_cell_still_runs(self):
        self.runner.start("import time\nprint(time.monotonic())\ntime.sleep(0.5)")
        reply = self.runner.collect()
        self.assertEqual(len(reply.printed), 1)

    def test_c_code_and_subprocesses_print_too(self):
        self.assertEqual(self.run_cell("import ctypes\nctypes.CDLL(None).puts(b'from C')").stdout, "from C\n")
        code = "import subprocess\nprint('before')\nsubprocess.run(['echo', 'child'])\nprint('after')"
        self.assertEqual(self.run_cell(code).stdout, "before\nchild\nafter\n")

    def test_c_output_without_a_line_end_arrives_with_the_cell(self):
        self.assertEqual(self.run_cell("""
            import ctypes
            ctypes.CDLL(None).printf(b'partial')
        """).stdout, "partial")

    def test_descriptors_written_directly_arrive(self):
        self.assertEqual(self.run_cell("import os\nos.write(2, b'raw')").stderr, "raw")

    def test_stdout_is_what_python_makes_it(self):
        code = """
            import io, sys
            out = sys.stdout
            [isinstance(out, io.TextIOWrapper), out.fileno(), out.encoding, out.name, sys.stderr.errors,
             out is sys.__stdout__, out.isatty(), out.mode]
        """
        self.assertEqual(self.value_of(code), [True, 1, "utf-8", "<stdout>", "backslashreplace", True, False, "w"])

    def test_stdout_can_be_reconfigured(self):
        self.assertEqual(self.run_cell("""
            import sys
            sys.stdout.reconfigure(encoding='latin-1')
            print('é')
        """).stdout, "\udce9\n")

    def test_redirect_stdout_captures(self):
        code = """
            import contextlib, io
            with contextlib.redirect_stdout(io.StringIO()) as f:
                print('inside')
            f.getvalue()
        """
        self.assertEqual(self.value_of(code), "inside\n")

    def test_a_redirection_stays_until_the_user_ends_it(self):
        self.run_cell("import io, sys\nsys.stdout = io.StringIO()")
        self.assertEqual(self.run_cell("print('hidden')").stdout, "")
        self.assertEqual(self.value_of("""
            text = sys.stdout.getvalue()
            sys.stdout = sys.__stdout__
            text
        """), "hidden\n")
        self.assert_still_works()

    def test_large_output_arrives_whole(self):
        self.assertEqual(self.run_cell("print('x' * 3_000_000)").stdout, "x" * 3_000_000 + "\n")

    def test_warnings_and_logging_go_to_stderr(self):
        reply = self.run_cell("import warnings, logging\nwarnings.warn('careful')\nlogging.warning('logged')")
        self.assertIn('<cell 1>:2: UserWarning: careful\n  warnings.warn(\'careful\')\n', reply.stderr)
        self.assertIn("WARNING:root:logged\n", reply.stderr)

    def test_input_fails_without_interactive_input(self):
        error = self.run_cell("name = input('Name? ')").error
        self.assertEqual(error["type"], "EOFError")
        self.assertIn("this sandbox has no interactive input", error["message"])
        self.assertNotIn("belljar_runner", error["traceback"])

    def test_input_reads_what_the_user_puts_there(self):
        self.assertEqual(self.value_of("import io, sys\nsys.stdin = io.StringIO('Ada\\n')\ninput()"), "Ada")

    def test_standard_input_is_empty(self):
        self.assertEqual(self.value_of("import sys\nsys.stdin.read()"), "")


class Mistakes(RunnerTest):
    """Ordinary accidents of a cell cost that cell, not the session."""

    def assert_survives(self, code: str) -> None:
        self.run_cell(code)
        self.assert_still_works()

    def test_shadowing_builtins(self):
        self.assert_survives("len = str = dict = list = isinstance = repr = 3\nopen = type = None")

    def test_replacing_open_in_builtins(self):
        self.assert_survives("import builtins\nbuiltins.open = None")

    def test_a_file_named_like_a_module_of_the_standard_library(self):
        self.assert_survives("for name in ('json', 'traceback', 'io', 'ast'): open(name + '.py', 'w').write('1 / 0')")
        self.assertEqual(self.run_cell("1 / 0").error["type"], "ZeroDivisionError")

    def test_patching_json(self):
        self.assert_survives("import json\njson.dumps = json.loads = lambda *a, **k: 'patched'")

    def test_closing_stdout(self):
        self.assert_survives("import sys\nsys.stdout.close()\nsys.stderr.close()\nsys.stdin.close()")

    def test_closing_the_descriptors(self):
        self.assert_survives("import os\nos.close(1)\nos.close(2)\nos.close(0)")

    def test_closing_streams_and_descriptors(self):
        self.assert_survives("""
            import os, sys
            for stream in (sys.stdin, sys.stdout, sys.stderr): stream.close()
            for fd in range(3): os.close(fd)
        """)

    def test_detaching_stdout(self):
        self.assert_survives("import sys\nsys.stdout.detach()")

    def test_stdout_set_to_none(self):
        self.assert_survives("import sys\nsys.stdout = sys.stderr = sys.stdin = None\nprint('nowhere')")

    def test_stdout_deleted(self):
        self.assert_survives("import sys\ndel sys.stdout, sys.stderr")

    def test_stdout_left_in_a_closed_file(self):
        self.assert_survives("import sys\nwith open('log', 'w') as sys.stdout: print('x')")

    def test_a_tiny_recursion_limit(self):
        self.assert_survives("import sys\nsys.setrecursionlimit(60)")
        self.assertEqual(self.value_of("sys.getrecursionlimit()"), 60)
        self.assertEqual(self.run_cell("""
            def f(n): return f(n - 1) if n else 0
            f(100)
        """).error["type"], "RecursionError")

    def test_leaving_the_working_directory(self):
        self.assert_survives("import os\nos.mkdir('gone')\nos.chdir('gone')\nos.rmdir('../gone')")

    def test_emptying_the_namespace(self):
        self.assert_survives("globals().clear()")

    def test_clearing_modules(self):
        self.assert_survives("""
            import sys
            for name in list(sys.modules):
                if name.startswith(('json', 'traceback')): del sys.modules[name]
        """)

    def test_clearing_the_environment(self):
        self.assert_survives("import os\nos.environ.clear()")

    def test_stopping_collection_of_source_lines(self):
        self.assert_survives("import linecache\nlinecache.clearcache()\nlinecache.cache = {}")
