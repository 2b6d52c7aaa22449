"""Signals, threads and processes behave as in a script, and never reach the runner's own channel."""

from tests.harness import RunnerTest
from tests.waiting import any_moment, slow_peer


class Interrupts(RunnerTest):
    def interrupted(self, code: str, *, sleeps: bool = True):
        """Runs code that makes its mark and then sleeps, and interrupts it there."""
        self.runner.start(code)
        self.runner.wait_for_mark()
        if sleeps:
            self.runner.wait_for_sleep()
        self.runner.interrupt()
        return self.runner.collect()

    def test_an_interrupt_ends_the_cell_and_keeps_the_names(self):
        reply = self.interrupted("x = 1\nopen('mark', 'w').close()\nwhile True: pass", sleeps=False)
        self.assertEqual(reply.error["type"], "KeyboardInterrupt")
        self.assertEqual(self.value_of("x"), 1)

    def test_an_interrupt_ends_a_sleep(self):
        reply = self.interrupted("import time\nopen('mark', 'w').close()\ntime.sleep(60)")
        self.assertEqual(reply.error["type"], "KeyboardInterrupt")

    def test_an_interrupt_ends_an_await_and_its_finally_runs(self):
        reply = self.interrupted("""
            import asyncio, os
            # The loop makes the mark when the await below has given it its turn.
            asyncio.get_running_loop().call_soon(os.mknod, 'mark')
            try:
                await asyncio.sleep(60)
            finally:
                print('cleaned')
        """)
        self.assertEqual((reply.error["type"], reply.stdout), ("KeyboardInterrupt", "cleaned\n"))
        self.assertIn("await asyncio.sleep(60)", reply.traceback)
        self.assertEqual(self.value_of("await asyncio.sleep(0, 1)"), 1)

    def test_an_interrupt_ends_asyncio_run(self):
        reply = self.interrupted("import asyncio\nopen('mark', 'w').close()\nasyncio.run(asyncio.sleep(60))")
        self.assertEqual(reply.error["type"], "KeyboardInterrupt")
        self.assert_still_works()

    def test_an_interrupt_ends_a_slow_repr(self):
        reply = self.interrupted("""
            import time
            class Slow:
                def __repr__(self):
                    open('mark', 'w').close()
                    time.sleep(60)
            Slow()
        """)
        self.assertEqual(reply.error["type"], "KeyboardInterrupt")
        self.assert_still_works()

    def test_an_interrupt_between_cells_harms_nobody(self):
        self.run_cell("x = 5")
        for _ in range(5):
            self.runner.interrupt()
        self.assertEqual(self.value_of("x"), 5)

    def test_interrupts_at_any_moment_leave_exactly_one_done_per_run(self):
        for step in range(60):
            self.runner.start("display('x' * 1000)\nfor i in range(2000): pass\n1")
            any_moment(step * 0.00002)
            self.runner.interrupt()
            error = self.runner.collect().error
            self.assertIn(error and error["type"], (None, "KeyboardInterrupt"))
        self.assert_still_works()

    def test_a_cell_can_catch_an_interrupt(self):
        reply = self.interrupted("""
            import time
            try:
                open('mark', 'w').close()
                time.sleep(60)
            except KeyboardInterrupt: got = 'caught'
            got
        """)
        self.assertEqual(reply.done["value"], "caught")

    def test_a_handler_of_the_users_is_used_and_stays(self):
        self.run_cell("""
            import signal, time
            seen = []
            signal.signal(signal.SIGINT, lambda *a: seen.append(1))
        """)
        self.interrupted("open('mark', 'w').close()\ntime.sleep(0.8)")
        self.assertEqual(self.value_of("len(seen)"), 1)

    def test_an_alarm_that_a_cell_forgot_does_not_break_the_runner(self):
        self.run_cell("""
            import signal
            def late(*a): raise TimeoutError('late')
            signal.signal(signal.SIGALRM, late)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
        """)
        any_moment(0.2)
        self.run_cell("pass")
        self.assert_still_works()

    def test_an_alarm_works_as_a_timeout_inside_a_cell(self):
        code = """
            import signal, time
            def late(*a): raise TimeoutError('late')
            signal.signal(signal.SIGALRM, late)
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            time.sleep(30)
        """
        self.assertEqual(self.run_cell(code).error["type"], "TimeoutError")


class Threads(RunnerTest):
    def test_a_thread_goes_on_between_cells(self):
        self.run_cell("""
            import threading, time
            done = []
            t = threading.Thread(target=lambda: (time.sleep(0.2), done.append(1), open('mark', 'w').close()))
            t.start()
        """)
        self.runner.wait_for_mark()
        self.assertEqual(self.value_of("done"), [1])

    def test_an_error_in_a_thread_is_printed(self):
        reply = self.run_cell("""
            import threading
            t = threading.Thread(target=lambda: 1 / 0, name='worker')
            t.start(); t.join()
        """)
        self.assertIn("Exception in thread worker:", reply.stderr)
        self.assertIn("ZeroDivisionError: division by zero", reply.stderr)


class Processes(RunnerTest):
    def test_a_forked_child_ends_like_a_script(self):
        code = """
            import os, atexit
            atexit.register(lambda: print('bye from', 'child' if os.getpid() != parent else 'parent'))
            parent = os.getpid()
            pid = os.fork()
            if pid: _, status = os.waitpid(pid, 0)
            else: print('in child', end=' ')
            os.waitstatus_to_exitcode(status) if pid else None
        """
        reply = self.run_cell(code)
        self.assertEqual((reply.stdout, reply.done["value"]), ("in child bye from child\n", 0))
        self.assert_still_works()

    def test_a_forked_child_that_fails_prints_its_traceback_and_exits_with_one(self):
        reply = self.run_cell("""
            import os
            pid = os.fork()
            if not pid: 1 / 0
            os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        """)
        self.assertEqual(reply.done["value"], 1)
        self.assertIn('File "<cell 1>", line 3, in <module>', reply.stderr)
        self.assertNotIn("belljar_runner", reply.stderr)

    def test_a_forked_child_that_exits_gives_its_code(self):
        reply = self.run_cell("""
            import os, sys
            pid = os.fork()
            if not pid: sys.exit(7)
            os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        """)
        self.assertEqual(reply.done["value"], 7)

    def test_a_forked_child_cannot_speak_on_the_channel(self):
        code = """
            import os
            pid = os.fork()
            if not pid:
                display('from the child')
                try: os.fstat(3)
                except OSError: print('no channel')
                os._exit(0)
            os.waitpid(pid, 0)[1]
        """
        reply = self.run_cell(code)
        self.assertEqual([result for result in reply.results if not result["main"]], [])
        self.assertEqual(reply.stdout, "'from the child'\nno channel\n")

    def test_a_subprocess_does_not_inherit_the_channel(self):
        code = """
            import subprocess
            subprocess.run(['ls', '/proc/self/fd'], capture_output=True, text=True, close_fds=False).stdout.split()
        """
        self.assertEqual(self.value_of(code)[:3], ["0", "1", "2"])
        self.assertLessEqual(len(self.value_of(code)), 4)

    def test_a_pool_runs_functions_of_a_cell(self):
        self.run_cell("def square(n): return n * n")
        code = """
            import multiprocessing
            with multiprocessing.Pool(2) as pool: out = pool.map(square, range(4))
            out
        """
        self.assertEqual(self.value_of(code), [0, 1, 4, 9])

    def test_a_process_pool_executor_runs_functions_of_a_cell(self):
        code = """
            from concurrent.futures import ProcessPoolExecutor
            def half(n): return n / 2
            with ProcessPoolExecutor(2) as pool: out = list(pool.map(half, [2, 4]))
            out
        """
        self.assertEqual(self.value_of(code), [1, 2])

    def test_spawn_and_forkserver_run_functions_of_modules(self):
        self.run_cell("open('work.py', 'w').write('def triple(n): return 3 * n')")
        for method in ("spawn", "forkserver"):
            code = f"""
                import multiprocessing, work
                with multiprocessing.get_context({method!r}).Pool(1) as pool: out = pool.map(work.triple, [1, 2])
                out
            """
            self.assertEqual(self.value_of(code), [3, 6], method)

    def test_a_child_process_prints_and_its_error_is_seen(self):
        code = """
            import multiprocessing
            def f():
                print('child')
                1 / 0
            p = multiprocessing.get_context('fork').Process(target=f); p.start(); p.join(); p.exitcode
        """
        reply = self.run_cell(code)
        self.assertEqual((reply.stdout, reply.done["value"]), ("child\n", 1))
        self.assertIn("ZeroDivisionError", reply.stderr)

    def test_the_user_still_chooses_the_start_method(self):
        self.assertEqual(self.value_of("""
            import multiprocessing
            multiprocessing.set_start_method('spawn')
            multiprocessing.get_start_method()
        """), "spawn")


class Finishing(RunnerTest):
    def test_the_end_waits_for_threads_and_runs_exit_handlers(self):
        self.run_cell("""
            import atexit, threading, time
            atexit.register(print, 'handler')
            threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()
        """)
        self.runner.send(op="finish")
        reply = self.runner.collect()
        self.assertEqual((reply.stdout, reply.error), ("thread\nhandler\n", None))
        self.assertEqual(self.runner.exit_status(), 0)

    def test_a_failing_exit_handler_is_printed(self):
        self.run_cell("import atexit\natexit.register(lambda: 1 / 0)")
        self.runner.send(op="finish")
        self.assertIn("ZeroDivisionError", self.runner.collect().stderr)

    def test_the_runner_ends_when_the_host_hangs_up(self):
        self.runner._socket.shutdown(2)
        self.assertEqual(self.runner.exit_status(), 0)


class Frames(RunnerTest):
    def test_a_request_may_arrive_in_pieces_or_together_with_the_next(self):
        import json

        def frame(code):
            body = json.dumps({"op": "run", "code": code, "name": "<c>", "show_last": True, "value_limit": 99}).encode()
            return len(body).to_bytes(4, "little") + body

        both = frame("1") + frame("2")
        for byte in both[:40]:
            self.runner._socket.sendall(bytes([byte]))
            slow_peer(0.0005)
        self.runner._socket.sendall(both[40:-10])
        self.assertEqual(self.runner.collect().done["value"], 1)
        self.runner._socket.sendall(both[-10:])
        self.assertEqual(self.runner.collect().done["value"], 2)

    def test_a_large_request_arrives_whole(self):
        self.assertEqual(self.value_of("len('" + "x" * 5_000_000 + "')"), 5_000_000)
