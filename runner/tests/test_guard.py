"""What an environment does not have is refused in words that say what to do; what it has is left alone."""

import os

from tests.test_zygote import ZygoteTest

PROCESSES = (
    "processes are not allowed in environment `small`: use Python itself (json, csv, pathlib, threading, ...) instead "
    "of a command; a function with its own environment (Call Function) can start programs"
)
PACKAGES = (
    "packages cannot be installed in environment `small`: use what it has, ask for another environment, or use a "
    "function with its own requirements.txt (Call Function)"
)
HOST = "code in a sandbox installs nothing by itself: write %pip install NAME in a cell, or belljar.install(\"NAME\")"
# Inside, Python runs from an environment. Debian's refuses ensurepip by itself when it does not.
SURROUNDINGS = """
    import asyncio, ctypes.util, multiprocessing, os, pty, subprocess, sys, threading, uuid
    sys.prefix = '/opt/env'
"""

STARTS = [
    "os.system('true')",
    "os.fork()",
    "os.forkpty()",
    "os.execv('/bin/true', ['true'])",
    "os.execlp('true', 'true')",
    "os.spawnlp(os.P_WAIT, 'true', 'true')",
    "os.posix_spawn('/bin/true', ['true'], {})",
    "os.posix_spawnp('true', ['true'], {})",
    "os.popen('true')",
    "subprocess.run(['true'])",
    "subprocess.getoutput('true')",
    "pty.spawn('true')",
    "multiprocessing.get_context('fork').Process(target=print).start()",
    "multiprocessing.get_context('spawn').Process(target=print).start()",
    "multiprocessing.get_context('forkserver').Process(target=print).start()",
    "multiprocessing.Pool(1)",
    "multiprocessing.Manager()",
    "asyncio.run(asyncio.create_subprocess_exec('true'))",
]

INSTALLS = [
    "import ensurepip; ensurepip.bootstrap(root='there')",
    "ensurepip.bootstrap()",
    "subprocess.run(['pip', 'install', 'x'])",
    "subprocess.run(['/opt/env/bin/pip3.11', 'install', 'x'])",
    "subprocess.run([sys.executable, '-m', 'pip', 'install', 'x'])",
    "subprocess.run('pip install x', shell=True)",
    "subprocess.check_call([b'pip', 'install', 'x'])",
    "os.system('python3 -m pip install x')",
]

HARMLESS = [
    "(lambda t: (t.start(), t.join()))(threading.Thread(target=print))",
    "uuid.getnode() and None",
    "ctypes.util.find_library('c') and None",
    "import ensurepip, subprocess, multiprocessing.pool, venv",
]


class Guard(ZygoteTest):
    def runner(self, *options: str):
        self.start(*options)
        self.assertEqual(self.socket.recv(1), b"R")
        runner = self.spawn()
        self.assertIsNone(runner.run(SURROUNDINGS).error)
        return runner

    def assert_refused(self, runner, code: str, kind: str, message: str, denied: str) -> None:
        error = runner.run(code).error
        self.assertIsNotNone(error, code)
        self.assertEqual((error["type"], error["message"], error.get("denied")), (kind, message, denied), code)
        self.assertIn(f"{kind}: {message}\n", error["traceback"], code)
        self.assertNotIn("belljar", error["traceback"], code)

    def test_no_way_of_starting_a_process_goes_without_the_sentence(self):
        runner = self.runner("--no-processes")
        for code in STARTS:
            self.assert_refused(runner, code, "PermissionError", PROCESSES, "process")

    def test_what_needs_no_process_works_without_them(self):
        runner = self.runner("--no-processes", "--no-installs")
        for code in HARMLESS:
            self.assertIsNone(runner.run(code).error, code)

    def test_code_can_expect_the_refusal_as_a_permission_error(self):
        runner = self.runner("--no-processes")
        code = "try: os.fork()\nexcept PermissionError as e: kind = type(e)\n[kind.__name__, repr(kind)]"
        self.assertEqual(runner.run(code).done["value"], ["PermissionError", "<class 'PermissionError'>"])

    def test_where_processes_are_allowed_they_start(self):
        runner = self.runner("--no-installs")
        self.assertEqual(runner.run("subprocess.run(['true']).returncode").done["value"], 0)
        self.assertEqual(runner.run("os.system('echo pip install x')").stdout, "pip install x\n")

    def test_where_processes_are_allowed_bootstrapping_pip_is_refused(self):
        runner = self.runner("--no-installs")
        for code in INSTALLS[:2]:
            self.assert_refused(runner, code, "PermissionError", PACKAGES, "package")

    def test_without_processes_no_way_of_installing_goes_without_the_sentence(self):
        runner = self.runner("--no-installs", "--no-processes")
        for code in INSTALLS:
            self.assert_refused(runner, code, "PermissionError", PACKAGES, "package")

    def test_a_missing_installer_is_missing_as_python_has_it_and_known_as_one(self):
        runner = self.runner("--no-installs")
        message = "No module named 'micropip'"
        self.assert_refused(runner, "import micropip", "ModuleNotFoundError", message, "package")
        importing = "import importlib; importlib.import_module('micropip')"
        self.assert_refused(runner, importing, "ModuleNotFoundError", message, "package")
        code = "try: import micropip\nexcept ImportError as e: name = e.name\nname"
        self.assertEqual(runner.run(code).done["value"], "micropip")
        code = "import importlib.util\nimportlib.util.find_spec('micropip') is None"
        self.assertTrue(runner.run(code).done["value"])

    def test_a_pip_that_is_there_can_be_read_with_but_not_commanded(self):
        commands = os.path.join(self.folder, "pip", "_internal", "cli")
        os.makedirs(commands, exist_ok=True)
        for folder in ("", "_internal", "_internal/cli"):
            open(os.path.join(self.folder, "pip", folder, "__init__.py"), "w").close()
        open(os.path.join(commands, "main.py"), "w").close()
        runner = self.runner("--no-installs", "--no-processes")
        runner.run(f"sys.path.insert(0, {self.folder!r})")
        self.assertIsNone(runner.run("import pip._internal").error)
        code = "from pip._internal.cli.main import main"
        self.assert_refused(runner, code, "PermissionError", PACKAGES, "package")

    def test_any_other_missing_module_is_as_python_has_it(self):
        error = self.runner("--no-installs").run("import no_such_module").error
        self.assertEqual((error["message"], error.get("denied")), ("No module named 'no_such_module'", None))

    def test_where_the_host_installs_other_ways_point_to_it(self):
        runner = self.runner()
        error = runner.run("import micropip").error
        self.assertEqual((error["denied"], error["hint"]), ("package", HOST))
        for code in INSTALLS[:2]:
            error = runner.run(code).error
            self.assertEqual((error["message"], error["denied"]), (HOST, "package"))
