"""Signals, threads and processes behave as in a script, and never reach the kernel's own conversation."""

import time

from tests.harness import KernelTest


class Interrupts(KernelTest):
    def interrupted(self, code: str):
        self.kernel.start(code)
        time.sleep(0.4)
        self.kernel.interrupt()
        return self.kernel.collect()

    def test_an_interrupt_ends_the_cell_and_keeps_the_names(self):
        reply = self.interrupted("x = 1\nwhile True: pass")
        self.assertEqual(reply.error["type"], "KeyboardInterrupt")
        self.assertEqual(self.value_of("x"), 1)

    def test_an_interrupt_ends_a_sleep(self):
        self.assertEqual(self.interrupted("import time\ntime.sleep(60)").error["type"], "KeyboardInterrupt")

    def test_an_interrupt_ends_an_await_and_its_finally_runs(self):
        reply = self.interrupted("import asyncio\ntry:\n    await asyncio.sleep(60)\nfinally:\n    print('cleaned')")
        self.assertEqual((reply.error["type"], reply.stdout), ("KeyboardInterrupt", "cleaned\n"))
        self.assertIn("await asyncio.sleep(60)", reply.traceback)
        self.assertEqual(self.value_of("await asyncio.sleep(0, 1)"), 1)

    def test_an_interrupt_ends_asyncio_run(self):
        reply = self.interrupted("import asyncio\nasyncio.run(asyncio.sleep(60))")
        self.assertEqual(reply.error["type"], "KeyboardInterrupt")
        self.assert_still_works()

    def test_an_interrupt_ends_a_slow_repr(self):
        reply = self.interrupted("import time\nclass Slow:\n    def __repr__(self): time.sleep(60)\nSlow()")
        self.assertEqual(reply.error["type"], "KeyboardInterrupt")
        self.assert_still_works()

    def test_an_interrupt_between_cells_harms_nobody(self):
        self.run_cell("x = 5")
        for _ in range(5):
            self.kernel.interrupt()
        time.sleep(0.1)
        self.assertEqual(self.value_of("x"), 5)

    def test_interrupts_at_any_moment_leave_exactly_one_done_per_run(self):
        for step in range(60):
            self.kernel.start("display('x' * 1000)\nfor i in range(2000): pass\n1")
            time.sleep(step * 0.00002)
            self.kernel.interrupt()
            error = self.kernel.collect().error
            self.assertIn(error and error["type"], (None, "KeyboardInterrupt"))
        self.assert_still_works()

    def test_a_cell_can_catch_an_interrupt(self):
        reply = self.interrupted("import time\ntry: time.sleep(60)\nexcept KeyboardInterrupt: got = 'caught'\ngot")
        self.assertEqual(reply.done["value"], "caught")

    def test_a_handler_of_the_users_is_used_and_stays(self):
        self.run_cell("import signal, time\nseen = []\nsignal.signal(signal.SIGINT, lambda *a: seen.append(1))")
        self.interrupted("time.sleep(0.8)")
        self.assertEqual(self.value_of("len(seen)"), 1)

    def test_an_alarm_that_a_cell_forgot_does_not_break_the_kernel(self):
        self.run_cell("import signal\ndef late(*a): raise TimeoutError('late')\nsignal.signal(signal.SIGALRM, late)\nsignal.setitimer(signal.ITIMER_REAL, 0.05)")
        time.sleep(0.2)
        self.run_cell("pass")
        self.assert_still_works()

    def test_an_alarm_works_as_a_timeout_inside_a_cell(self):
        code = "import signal, time\ndef late(*a): raise TimeoutError('late')\nsignal.signal(signal.SIGALRM, late)\nsignal.setitimer(signal.ITIMER_REAL, 0.1)\ntime.sleep(30)"
        self.assertEqual(self.run_cell(code).error["type"], "TimeoutError")


class Threads(KernelTest):
    def test_a_thread_goes_on_between_cells(self):
        self.run_cell("import threading, time\ndone = []\nt = threading.Thread(target=lambda: (time.sleep(0.2), done.append(1)))\nt.start()")
        time.sleep(0.4)
        self.assertEqual(self.value_of("done"), [1])

    def test_an_error_in_a_thread_is_printed(self):
        reply = self.run_cell("import threading\nt = threading.Thread(target=lambda: 1 / 0, name='worker')\nt.start(); t.join()")
        self.assertIn("Exception in thread worker:", reply.stderr)
        self.assertIn("ZeroDivisionError: division by zero", reply.stderr)


class Processes(KernelTest):
    def test_a_forked_child_ends_like_a_script(self):
        code = "import os, atexit\natexit.register(lambda: print('bye from', 'child' if os.getpid() != parent else 'parent'))\n" \
            "parent = os.getpid()\npid = os.fork()\nif pid: _, status = os.waitpid(pid, 0)\nelse: print('in child', end=' ')\n" \
            "os.waitstatus_to_exitcode(status) if pid else None"
        reply = self.run_cell(code)
        self.assertEqual((reply.stdout, reply.done["value"]), ("in child bye from child\n", 0))
        self.assert_still_works()

    def test_a_forked_child_that_fails_prints_its_traceback_and_exits_with_one(self):
        reply = self.run_cell("import os\npid = os.fork()\nif not pid: 1 / 0\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])")
        self.assertEqual(reply.done["value"], 1)
        self.assertIn('File "<cell 1>", line 3, in <module>', reply.stderr)
        self.assertNotIn("belljar_kernel", reply.stderr)

    def test_a_forked_child_that_exits_gives_its_code(self):
        reply = self.run_cell("import os, sys\npid = os.fork()\nif not pid: sys.exit(7)\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])")
        self.assertEqual(reply.done["value"], 7)

    def test_a_forked_child_cannot_speak_on_the_channel(self):
        code = "import os\npid = os.fork()\nif not pid:\n    display('from the child')\n    try: os.fstat(3)\n    except OSError: print('no channel')\n" \
            "    os._exit(0)\nos.waitpid(pid, 0)[1]"
        reply = self.run_cell(code)
        self.assertEqual(([r for r in reply.results if not r["main"]], reply.stdout), ([], "'from the child'\nno channel\n"))

    def test_a_subprocess_does_not_inherit_the_channel(self):
        code = "import subprocess\nsubprocess.run(['ls', '/proc/self/fd'], capture_output=True, text=True, close_fds=False).stdout.split()"
        self.assertEqual(self.value_of(code)[:3], ["0", "1", "2"])
        self.assertLessEqual(len(self.value_of(code)), 4)

    def test_a_pool_runs_functions_of_a_cell(self):
        self.run_cell("def square(n): return n * n")
        code = "import multiprocessing\nwith multiprocessing.Pool(2) as pool: out = pool.map(square, range(4))\nout"
        self.assertEqual(self.value_of(code), [0, 1, 4, 9])

    def test_a_process_pool_executor_runs_functions_of_a_cell(self):
        code = "from concurrent.futures import ProcessPoolExecutor\ndef half(n): return n / 2\n" \
            "with ProcessPoolExecutor(2) as pool: out = list(pool.map(half, [2, 4]))\nout"
        self.assertEqual(self.value_of(code), [1, 2])

    def test_spawn_and_forkserver_run_functions_of_modules(self):
        self.run_cell("open('work.py', 'w').write('def triple(n): return 3 * n')")
        for method in ("spawn", "forkserver"):
            code = f"import multiprocessing, work\nwith multiprocessing.get_context({method!r}).Pool(1) as pool: out = pool.map(work.triple, [1, 2])\nout"
            self.assertEqual(self.value_of(code), [3, 6], method)

    def test_a_child_process_prints_and_its_error_is_seen(self):
        code = "import multiprocessing\ndef f():\n    print('child')\n    1 / 0\n" \
            "p = multiprocessing.get_context('fork').Process(target=f); p.start(); p.join(); p.exitcode"
        reply = self.run_cell(code)
        self.assertEqual((reply.stdout, reply.done["value"]), ("child\n", 1))
        self.assertIn("ZeroDivisionError", reply.stderr)

    def test_the_user_still_chooses_the_start_method(self):
        self.assertEqual(self.value_of("import multiprocessing\nmultiprocessing.set_start_method('spawn')\nmultiprocessing.get_start_method()"), "spawn")


class Finishing(KernelTest):
    def test_the_end_waits_for_threads_and_runs_exit_handlers(self):
        self.run_cell("import atexit, threading, time\natexit.register(print, 'handler')\n"
                      "threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()")
        self.kernel.send(op="finish")
        reply = self.kernel.collect()
        self.assertEqual((reply.stdout, reply.error), ("thread\nhandler\n", None))
        self.assertEqual(self.kernel.exit_status(), 0)

    def test_a_failing_exit_handler_is_printed(self):
        self.run_cell("import atexit\natexit.register(lambda: 1 / 0)")
        self.kernel.send(op="finish")
        self.assertIn("ZeroDivisionError", self.kernel.collect().stderr)

    def test_the_kernel_ends_when_the_host_hangs_up(self):
        self.kernel._socket.shutdown(2)
        self.assertEqual(self.kernel.exit_status(), 0)


class Frames(KernelTest):
    def test_a_request_may_arrive_in_pieces_or_together_with_the_next(self):
        import json

        def frame(code):
            body = json.dumps({"op": "run", "code": code, "name": "<c>", "show_last": True, "value_limit": 99}).encode()
            return len(body).to_bytes(4, "little") + body

        both = frame("1") + frame("2")
        for byte in both[:40]:
            self.kernel._socket.sendall(bytes([byte]))
            time.sleep(0.0005)
        self.kernel._socket.sendall(both[40:-10])
        self.assertEqual(self.kernel.collect().done["value"], 1)
        self.kernel._socket.sendall(both[-10:])
        self.assertEqual(self.kernel.collect().done["value"], 2)

    def test_a_large_request_arrives_whole(self):
        self.assertEqual(self.value_of("len('" + "x" * 5_000_000 + "')"), 5_000_000)
