"""Figures come out whether they are shown, saved or merely drawn, and each state of them once."""

import base64
import os
import unittest

from tests.harness import RunnerTest


class Figures(RunnerTest):
    def setUp(self):
        os.environ["MPLBACKEND"] = "agg"
        try:
            import matplotlib.pyplot  # before the fork, so that each runner has it
        except ImportError:
            raise unittest.SkipTest("matplotlib is not installed") from None
        super().setUp()
        self.run_cell("import matplotlib.pyplot as plt")

    def images(self, code: str) -> int:
        reply = self.run_cell(code)
        self.assertIsNone(reply.error, reply)
        self.assertEqual(reply.stderr, "")
        pngs = [result["data"]["image/png"] for result in reply.results if "image/png" in result["data"]]
        for png in pngs:
            self.assertTrue(base64.b64decode(png).startswith(b"\x89PNG"))
        return len(pngs)

    def open_figures(self) -> int:
        return self.value_of("len(plt.get_fignums())")

    def test_the_backend_is_agg_and_can_be_asked_for(self):
        self.assertEqual(self.value_of("import matplotlib\nmatplotlib.get_backend().lower()"), "agg")
        self.assertEqual(self.images("matplotlib.use('Agg', force=True)\nplt.plot([1]); plt.show()"), 1)
        self.assertEqual(self.value_of("plt.get_backend().lower()"), "agg")

    def test_show_sends_every_open_figure_and_closes_it(self):
        self.assertEqual(self.images("plt.plot([1]); plt.figure(); plt.plot([2]); plt.show()"), 2)
        self.assertEqual(self.open_figures(), 0)

    def test_an_open_figure_is_sent_at_the_end_of_its_cell_and_stays_open(self):
        self.assertEqual(self.images("plt.plot([1, 2])"), 1)
        self.assertEqual(self.open_figures(), 1)

    def test_a_figure_that_did_not_change_is_not_sent_again(self):
        self.images("plt.plot([1, 2])")
        self.assertEqual(self.images("x = 1"), 0)

    def test_a_figure_that_a_later_cell_changes_is_sent_again(self):
        self.images("plt.plot([1, 2])")
        self.assertEqual(self.images("plt.title('now with a title');"), 1)

    def test_a_figure_just_saved_to_a_file_is_not_sent_as_well(self):
        self.assertEqual(self.images("plt.plot([1]); plt.savefig('a.png')"), 0)
        self.assertTrue(os.path.exists(self.runner.workspace + "/a.png"))
        self.assertEqual(self.images("x = 1"), 0)

    def test_a_figure_saved_under_another_backend_is_not_sent_as_well(self):
        self.assertEqual(self.images("""
            import matplotlib
            matplotlib.use('Agg')
            plt.plot([1]); plt.savefig('a.png', dpi=150)
        """), 0)

    def test_a_figure_saved_as_pdf_is_not_sent_as_well(self):
        self.assertEqual(self.images("plt.plot([1]); plt.savefig('a.pdf', bbox_inches='tight')"), 0)

    def test_a_figure_changed_after_it_was_saved_is_sent(self):
        self.assertEqual(self.images("plt.plot([1]); plt.savefig('a.png'); plt.title('late');"), 1)

    def test_a_figure_written_to_memory_is_still_sent(self):
        self.assertEqual(self.images("import io\nplt.plot([1]); plt.savefig(io.BytesIO())"), 1)

    def test_a_figure_saved_with_a_transparent_background_is_not_sent_as_well(self):
        self.assertEqual(self.images("plt.plot([1]); plt.savefig('a.png', transparent=True)"), 0)

    def test_a_figure_that_was_drawn_without_being_shown_is_sent(self):
        self.assertEqual(self.images("plt.plot([1]); plt.gcf().canvas.draw()"), 1)

    def test_a_figure_under_another_backend_is_sent(self):
        self.assertEqual(self.images("import matplotlib\nmatplotlib.use('Agg')\nplt.plot([1]); plt.show()"), 1)

    def test_a_figure_as_last_value_is_the_main_result_and_sent_once(self):
        reply = self.run_cell("fig, ax = plt.subplots(); ax.plot([1])\nfig")
        self.assertEqual([(r["main"], "image/png" in r["data"]) for r in reply.results], [(True, True)])

    def test_axes_as_last_value_bring_their_figure_along(self):
        reply = self.run_cell("fig, ax = plt.subplots()\nax")
        self.assertEqual([(r["main"], "image/png" in r["data"]) for r in reply.results], [(True, False), (False, True)])

    def test_a_figure_without_pyplot_can_be_displayed(self):
        self.assertEqual(self.images("""
            from matplotlib.figure import Figure
            f = Figure(); f.subplots().plot([1])
            display(f)
        """), 1)

    def test_a_figure_shown_alone_stays_open(self):
        self.assertEqual(self.images("fig = plt.figure(); plt.plot([1]); fig.show()"), 1)
        self.assertEqual(self.open_figures(), 1)

    def test_an_empty_or_closed_figure_is_not_sent(self):
        self.assertEqual(self.images("plt.figure(); plt.figure(); plt.plot([1]); plt.close()"), 0)

    def test_figures_of_a_failing_cell_are_sent(self):
        reply = self.run_cell("plt.plot([1])\n1 / 0")
        self.assertEqual((reply.error["type"], len(reply.results)), ("ZeroDivisionError", 1))

    def test_a_figure_that_cannot_be_drawn_does_not_fail_the_cell(self):
        reply = self.run_cell("plt.plot([1]); plt.title('$\\\\frac{$');")
        self.assertIsNone(reply.error)
        self.assertIn("the figure could not be drawn: ValueError", reply.stderr)
        self.assertEqual(self.run_cell("x = 1").stderr, "")

    def test_show_in_a_subprocess_does_nothing(self):
        program = "import matplotlib.pyplot as plt; plt.plot([1]); plt.show(); print(plt.get_backend())"
        reply = self.run_cell(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {program!r}])")
        self.assertEqual((reply.stdout.lower(), reply.stderr), ("agg\n", ""))

    def test_show_in_a_forked_child_does_nothing(self):
        code = """
            import multiprocessing
            def draw(): plt.plot([1]); plt.show()
            p = multiprocessing.get_context('fork').Process(target=draw); p.start(); p.join(); p.exitcode
        """
        reply = self.run_cell(code)
        self.assertEqual((reply.done["value"], len(reply.results)), (0, 1))
