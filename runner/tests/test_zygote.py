"""The zygote forks runners that share its modules and nothing else. A stub replaces the native library."""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

from tests.harness import HERE, SITE, Runner

PACKAGES = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
ZYGOTE = os.path.join(os.path.dirname(HERE), "zygote.py")
# As environments with these packages set them: a zygote has one thread.
ENVIRONMENT = {
    "LANG": "C.UTF-8", "MPLBACKEND": "agg", "OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
# In the jail a .pth file puts the folder on the path; the test's own folder stands for site-packages. Packages that
# these tests are given by PYTHONPATH are not seen by `-I`.
LAUNCH = [
    sys.executable, "-I", "-B", "-c",
    f"import os, runpy, sys; sys.path += {[SITE, *PACKAGES]!r} + [os.getcwd()]; "
    f"runpy.run_path({ZYGOTE!r}, run_name='__main__')",
]


class ZygoteTest(unittest.TestCase):
    """A zygote for each test, and its runners."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="belljar-zygote-")
        cls.library = os.path.join(cls.folder, "stub.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", cls.library, os.path.join(HERE, "zygote_stub.c")], check=True)
        cls.addClassCleanup(shutil.rmtree, cls.folder)

    def start(self, *options: str, plan: bytes = b"plan") -> None:
        self.socket, theirs = socket.socketpair()
        self.addCleanup(self.socket.close)
        reader, writer = os.pipe()
        os.write(writer, plan)
        os.close(writer)
        fds = theirs.detach(), reader
        command = [*LAUNCH, "--lib", self.library, "--socket", str(fds[0]), "--plan", str(fds[1])]
        command += ["--environment", "small"]
        self.zygote = subprocess.Popen(
            [*command, *options], pass_fds=fds, cwd=self.folder, env={"HOME": self.folder} | ENVIRONMENT,
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for fd in fds:
            os.close(fd)
        self.addCleanup(self._stop)

    def _stop(self) -> None:
        self.zygote.kill()
        self.zygote.communicate()

    def spawn(self) -> Runner:
        runner = Runner(self._request)
        self.addCleanup(runner.close)
        return runner

    def _request(self, workspace: str, channel: int, out: int, err: int) -> int:
        socket.send_fds(self.socket, [b"S"], [out, err, channel])
        return int.from_bytes(self.socket.recv(4), "little")


class Zygote(ZygoteTest):
    def test_runners_run_cells_and_see_nothing_of_the_zygote(self):
        self.start("--preload", "json", "--warm-up")
        self.assertEqual(self.socket.recv(1), b"R")
        runner = self.spawn()
        self.assertEqual(runner.run("print(1)\n6 * 7").done["value"], 42)
        code = """
            import sys
            names = [name for name in globals() if name[:2] != '__']
            runner = [path for path in sys.path if path.endswith('kernel')]
            [names, runner, sys.argv, sys.path[0], 'json' in sys.modules, __name__, sys.orig_argv == [sys.executable]]
        """
        value = runner.run(code).done["value"]
        self.assertEqual(value, [["sys"], [], [""], "", True, "__main__", True])

    def test_two_runners_share_nothing(self):
        self.start()
        self.assertEqual(self.socket.recv(1), b"R")
        first, second = self.spawn(), self.spawn()
        first.run("x = 1")
        self.assertEqual(second.run("x").error["type"], "NameError")
        draws = [runner.run("import random; random.random()").done["value"] for runner in (first, second)]
        self.assertNotEqual(*draws)

    def test_two_runners_have_no_random_state_in_common(self):
        self.start("--preload", "uuid", "--preload", "multiprocessing")
        self.assertEqual(self.socket.recv(1), b"R")
        runners = self.spawn(), self.spawn()
        for runner in runners:
            expected = ["random", "ssl", "tempfile", "uuid", "multiprocessing"]
            self.assertEqual([name for name in runner.ready["reseeded"] if name != "numpy"], expected)
        code = """
            import multiprocessing, random, ssl, tempfile, uuid
            key = bytes(multiprocessing.current_process().authkey)
            [random.random(), ssl.RAND_bytes(8).hex(), tempfile.mktemp(), str(uuid.uuid1()), key.hex()]
        """
        first, second = [runner.run(code).done["value"] for runner in runners]
        self.assertFalse(set(first) & set(second), (first, second))

    def test_the_zygote_ends_when_its_socket_is_closed(self):
        self.start()
        self.assertEqual(self.socket.recv(1), b"R")
        self.socket.close()
        self.assertEqual(self.zygote.wait(20), 0)

    def assert_refuses(self, reason: str) -> None:
        self.assertEqual((self.zygote.wait(20), self.zygote.stderr.read()), (70, f"belljar zygote: {reason}\n"))

    def test_a_preload_that_starts_a_thread_is_refused(self):
        with open(os.path.join(self.folder, "threaded.py"), "w") as module:
            module.write("import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n")
        self.start("--preload", "threaded")
        self.assert_refuses("it has 2 threads and may have only one: a preloaded module started the others")

    def test_a_preload_that_keeps_a_file_open_is_refused(self):
        path = os.path.join(self.folder, "keeper.py")
        with open(path, "w") as module:
            module.write("kept = open(__file__)\n")
        self.start("--preload", "keeper")
        self.assert_refuses(f"a preloaded module keeps files open: {path}")

    def test_a_preload_that_does_not_exist_is_refused(self):
        self.start("--preload", "no_such_module")
        self.assert_refuses("preloading no_such_module failed: ModuleNotFoundError: No module named 'no_such_module'")

    def test_a_refused_plan_stops_the_zygote(self):
        self.start(plan=b"nope")
        self.assert_refuses("the native library refused the plan: Invalid argument")

    def test_a_warm_up_with_tables_and_figures_leaves_no_figure(self):
        if not all(importlib.util.find_spec(name) for name in ("matplotlib", "pandas")):
            self.skipTest("matplotlib and pandas are not installed")
        self.start("--preload", "pandas", "--preload", "matplotlib.pyplot", "--warm-up")
        self.assertEqual(self.socket.recv(1), b"R")
        runner = self.spawn()
        self.assertIn("numpy", runner.ready["reseeded"])
        self.assertEqual(runner.run("import matplotlib.pyplot as plt\nplt.get_fignums()").done["value"], [])
        self.assertEqual(len(runner.run("plt.plot([1]); plt.show()").results), 1)
