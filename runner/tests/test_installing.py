"""Code asks the host for packages in the middle of a cell, and finds them in the next statement."""

import os
import tempfile
from typing import Any

from tests.harness import RunnerTest, Reply
from tests.test_zygote import ZygoteTest

NO_OPTION = "the option {} of pip cannot be used here"
REFUSED = {"op": "not_installed", "denied": True, "message": "the key is missing", "hint": "add it"}


class InstallingTest(RunnerTest):
    def setUp(self) -> None:
        super().setUp()
        room = tempfile.TemporaryDirectory()
        self.addCleanup(room.cleanup)
        self.room = room.name
        with open(os.path.join(self.room, "jug.py"), "w") as module:
            module.write("handle = 1\n")
        with open(os.path.join(self.room, "evil.pth"), "w") as file:
            file.write("import sys; sys.evil = True\n")

    def installed(self, **changes: Any) -> dict[str, Any]:
        return {"op": "installed", "path": self.room, "packages": [["jug", "1.0"]]} | changes

    def asked(self, code: str, **options: Any) -> list[str]:
        self.runner.start(code, **options)
        frame = self.runner.collect().done
        self.assertEqual(frame["ev"], "install", frame)
        return frame["requirements"]

    def answer(self, frame: dict[str, Any]) -> Reply:
        self.runner.send(**frame)
        return self.runner.collect()

    def test_what_was_installed_is_there_in_the_next_statement_and_in_later_cells(self) -> None:
        code = "import belljar\nbelljar.install('jug', 'mug>=2')\nimport jug\njug.handle"
        self.assertEqual(self.asked(code), ["jug", "mug>=2"])
        reply = self.answer(self.installed())
        self.assertEqual((reply.stdout, reply.done["value"]), ("installed jug 1.0\n", 1))
        self.assertEqual(self.value_of("import sys, jug\n[jug.handle, hasattr(sys, 'evil')]"), [1, False])

    def test_the_lines_of_a_notebook_are_understood(self) -> None:
        for line, expected in {
            "%pip install jug": ["jug"],
            "!pip install jug mug": ["jug", "mug"],
            "pip install jug": ["jug"],
            "pip3 install 'jug>=1, <2'": ["jug>=1, <2"],
            "%pip install -q -U jug  # why": ["jug"],
            "!python -m pip install jug": ["jug"],
            "!{sys.executable} -m pip install jug": ["jug"],
            "!uv pip install jug": ["jug"],
            "%uv pip install 'jug>=1'": ["jug>=1"],
            "x = 1\nif x:\n    %pip install jug\n    y = 2": ["jug"],
            "%pip install jug\r\nx = 1": ["jug"],
        }.items():
            self.assertEqual(self.asked(line), expected, line)
            reply = self.answer(self.installed())
            self.assertIsNone(reply.error, line)
            self.assertEqual(reply.stdout, "" if "-q" in line else "installed jug 1.0\n", line)

    def test_several_lines_of_one_cell_and_its_last_value(self) -> None:
        self.assertEqual(self.asked("%pip install jug\n%pip install mug\nimport jug\njug.handle"), ["jug"])
        self.runner.send(**self.installed())
        self.assertEqual(self.runner.collect().done["requirements"], ["mug"])
        self.assertEqual(self.answer(self.installed(packages=[])).done["value"], 1)

    def test_text_that_is_python_or_inside_of_a_string_stays_as_it_is(self) -> None:
        self.assertEqual(self.asked("text = '''\n%pip install mug\n'''\n%pip install jug\ntext"), ["jug"])
        self.assertEqual(self.answer(self.installed()).done["value"], "\n%pip install mug\n")
        self.assertEqual(self.value_of("pip = 9; install = 4\n(pip\n%install)"), 1)

    def test_any_other_line_that_does_not_compile_is_told_as_it_was_written(self) -> None:
        for code in ("%pip list", "!ls", "pip install", "x = = 1\n%pip install jug", "%pip install jug\nx = = 1"):
            error = self.run_cell(code).error
            self.assertEqual((error["type"], error["syntax"]), ("SyntaxError", True), code)
        self.assertIn("    x = = 1\n", error["traceback"])

    def test_a_script_is_no_notebook_and_can_call_the_function(self) -> None:
        self.assertTrue(self.run_cell("%pip install jug", argv=["s.py"], show_last=False).error["syntax"])
        code = "import belljar\nbelljar.install('jug')\nimport jug\nprint(jug.handle)"
        self.assertEqual(self.asked(code, argv=["s.py"], show_last=False), ["jug"])
        self.assertEqual(self.answer(self.installed()).stdout, "installed jug 1.0\n1\n")

    def test_options_are_refused_by_name_and_nothing_is_asked(self) -> None:
        for option in ("--index-url=https://example.org", "-r", "-e", "--pre", "--target"):
            error = self.run_cell(f"%pip install {option} jug").error
            self.assertEqual((error["denied"], error["message"]), ("install", NO_OPTION.format(option)))

    def test_a_refusal_is_an_exception_with_the_words_of_the_host(self) -> None:
        self.asked("import belljar\ntry:\n    belljar.install('jug')\nexcept PermissionError as error:\n    str(error)")
        self.assertIsNone(self.answer(REFUSED).error)
        self.asked("%pip install jug")
        error = self.answer(REFUSED).error
        told = {name: error[name] for name in ("type", "message", "denied", "hint")}
        message, hint = REFUSED["message"], REFUSED["hint"]
        self.assertEqual(told, {"type": "PermissionError", "message": message, "denied": "package", "hint": hint})
        self.assertIn("    %pip install jug\n", error["traceback"])
        self.assertNotIn("belljar_runner", error["traceback"])
        self.assert_still_works()

    def test_what_could_not_be_had_is_another_error_than_what_may_not(self) -> None:
        self.asked("%pip install jug")
        error = self.answer(REFUSED | {"denied": False}).error
        self.assertEqual((error["type"], error["denied"]), ("RuntimeError", "install"))

    def test_threads_and_forked_processes_are_told_why_not(self) -> None:
        code = """
            import belljar, os, threading
            def install():
                try:
                    belljar.install('jug')
                except RuntimeError as error:
                    print(error, flush=True)
            thread = threading.Thread(target=install)
            thread.start()
            thread.join()
            if os.fork() == 0:
                install()
                os._exit(0)
            os.wait()
        """
        expected = "a thread cannot install packages\npackages can be installed only by the main process of a session\n"
        self.assertEqual(self.run_cell(code).stdout, expected)

    def test_an_interrupt_is_heard_after_the_answer_and_leaves_the_channel_whole(self) -> None:
        self.asked("%pip install jug")
        self.runner.interrupt()
        self.assertEqual(self.answer(REFUSED).error["type"], "KeyboardInterrupt")
        self.assert_still_works()

    def test_a_name_that_is_no_text_is_told_at_once(self) -> None:
        error = self.run_cell("import belljar\nbelljar.install(['jug'])").error
        self.assertEqual(error["type"], "TypeError")


class WithoutInstallingTest(ZygoteTest):
    def test_an_environment_without_an_index_refuses_every_way_in_its_own_words(self) -> None:
        self.start("--no-installs")
        self.assertEqual(self.socket.recv(1), b"R")
        runner = self.spawn()
        for code in ("%pip install jug", "!pip install jug", "import belljar\nbelljar.install('jug')"):
            error = runner.run(code).error
            self.assertEqual((error["type"], error["denied"]), ("PermissionError", "package"), code)
            self.assertTrue(error["message"].startswith("packages cannot be installed in environment `small`"))
