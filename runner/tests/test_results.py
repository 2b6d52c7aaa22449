"""Results go out in every form they have."""

import base64
import importlib.util
import unittest

from tests.harness import Runner, RunnerTest


class Results(RunnerTest):
    def test_all_forms_of_an_object_go_out(self):
        code = """
class Rich:
    def __repr__(self): return 'rich'
    def _repr_html_(self): return '<b>rich</b>'
    def _repr_png_(self): return b'png bytes'
    def _repr_svg_(self): return '<svg/>'
    def _repr_markdown_(self): return '**rich**'
    def _repr_latex_(self): return '$r$'
    def _repr_json_(self): return {'r': 1}
Rich()"""
        self.assertEqual(self.run_cell(code).main, {
            "text/plain": "rich", "text/html": "<b>rich</b>", "image/png": base64.b64encode(b"png bytes").decode(),
            "image/svg+xml": "<svg/>", "text/markdown": "**rich**", "text/latex": "$r$", "application/json": {"r": 1},
        })

    def test_a_bundle_gives_any_mime_type(self):
        code = """
            class F:
                def __repr__(self): return 'F'
                def _repr_mimebundle_(self, include=None, exclude=None):
                    return {'application/vnd.plotly.v1+json': {'data': []}}, {'meta': 1}
            F()
        """
        self.assertEqual(self.run_cell(code).main, {"text/plain": "F", "application/vnd.plotly.v1+json": {"data": []}})

    def test_a_failing_repr_does_not_fail_the_cell(self):
        reply = self.run_cell("class Bad:\n    def __repr__(self): raise ValueError('no')\nBad()")
        self.assertIsNone(reply.error)
        self.assertEqual(reply.main, {"text/plain": "<Bad object whose repr failed: ValueError: no>"})

    def test_a_failing_form_is_left_out_with_a_note(self):
        reply = self.run_cell("""
            class Bad:
                def __repr__(self): return 'bad'
                def _repr_html_(self): raise ValueError('no')
            Bad()
        """)
        self.assertEqual(reply.main, {"text/plain": "bad"})
        self.assertEqual(reply.stderr, "_repr_html_ of Bad failed: ValueError: no\n")

    def test_a_form_that_is_not_json_is_left_out_with_a_note(self):
        reply = self.run_cell("""
            class J:
                def __repr__(self): return 'j'
                def _repr_json_(self): return {'x': float('nan')}
            J()
        """)
        self.assertEqual(reply.main, {"text/plain": "j"})
        expected = "the application/json form of the result is left out: nan is not a number in JSON\n"
        self.assertEqual(reply.stderr, expected)

    def test_a_form_deeper_than_the_host_reads_is_left_out_with_a_note(self):
        code = """
            x = 1
            for _ in range(200): x = [x]
            class J:
                def __repr__(self): return 'j'
                def _repr_json_(self): return x
            J()
        """
        self.assertEqual(self.run_cell(code).main, {"text/plain": "j"})

    def test_an_object_that_answers_everything_shows_its_repr(self):
        self.assertEqual(set(self.run_cell("""
            from unittest.mock import MagicMock
            MagicMock()
        """).main), {"text/plain"})

    def test_a_class_is_not_asked_for_the_forms_of_its_instances(self):
        self.assertEqual(set(self.run_cell("""
            class A:
                def _repr_html_(self): return 'x'
            A
        """).main), {"text/plain"})

    def test_display_shows_several_values_before_the_main_one(self):
        reply = self.run_cell("display(1, 'two')\n3")
        shown = [(result["data"]["text/plain"], result["main"]) for result in reply.results]
        self.assertEqual(shown, [("1", False), ("'two'", False), ("3", True)])

    def test_display_sends_raw_data_when_told_to(self):
        reply = self.run_cell("display({'text/html': '<i>'}, raw=True)")
        self.assertEqual(reply.results[0]["data"], {"text/html": "<i>"})

    def test_results_beyond_what_one_run_sends_are_counted_and_the_next_run_has_its_own(self):
        reply = self.run_cell("for n in range(600): display(n)")
        self.assertEqual((len(reply.results), reply.unsent), (512, 88))
        reply = self.run_cell("for n in range(600): display(n)\nraise ValueError")
        self.assertEqual((len(reply.results), reply.unsent, reply.error["type"]), (512, 88, "ValueError"))
        reply = self.run_cell("display(1)")
        self.assertEqual((len(reply.results), reply.unsent), (1, 0))
        reply = self.run_cell("for n in range(40): display('x' * 1_000_000)")
        self.assertEqual((len(reply.results), reply.unsent), (34, 6))

    def test_what_was_printed_before_a_result_is_readable_before_it(self):
        reply = self.run_cell("print('partial', end='')\ndisplay(1)\nimport time; time.sleep(0.2)")
        self.assertEqual(reply.stdout, "partial")

    def test_a_form_over_the_limit_is_named_and_the_others_stay(self):
        code = """
            class Big:
                def __repr__(self): return 'small'
                def _repr_html_(self): return 'x' * 5000
            Big()
        """
        result = self.run_cell(code, result_limit=1000).results[0]
        self.assertEqual((result["data"], result["dropped"]), ({"text/plain": "small"}, {"text/html": 5000}))

    def test_a_text_over_the_limit_is_replaced_by_a_word_about_it(self):
        result = self.run_cell("'x' * 5000", result_limit=1000).results[0]
        self.assertEqual(result["dropped"], {"text/plain": 5002})
        self.assertIn("text/plain has 5002 bytes, the limit is 1000", result["data"]["text/plain"])

    def test_no_frame_is_larger_than_the_host_accepts(self):
        reply = self.run_cell("'x' * 20_000_000", result_limit=1 << 30, value_limit=1 << 30)
        self.assertEqual((list(reply.results[0]["dropped"]), "value" in reply.done), (["text/plain"], False))

    def test_lone_surrogates_in_a_repr_travel(self):
        reply = self.run_cell("class S:\n    def __repr__(self): return '\\ud800'\nS()")
        self.assertEqual(reply.main, {"text/plain": "?"})

    def test_a_users_displayhook_is_called_as_well(self):
        self.run_cell("import sys\nsys.displayhook = lambda value: print('hook', value)")
        reply = self.run_cell("5")
        self.assertEqual((reply.stdout, reply.done["value"]), ("hook 5\n", 5))

    def test_display_works_from_a_thread(self):
        reply = self.run_cell("""
            import threading
            t = threading.Thread(target=display, args=(7,))
            t.start(); t.join()
        """)
        self.assertEqual([r["data"]["text/plain"] for r in reply.results], ["7"])


class Tables(RunnerTest):
    def setUp(self):
        try:
            import pandas  # noqa: F401  before the fork, so that each runner has it
        except ImportError:
            raise unittest.SkipTest("pandas is not installed") from None
        super().setUp()

    def test_a_table_has_text_and_html(self):
        main = self.run_cell("import pandas\npandas.DataFrame({'a': [1]})").main
        self.assertEqual(set(main), {"text/plain", "text/html"})

    def test_a_float_of_numpy_is_a_number(self):
        self.assertEqual(self.value_of("import numpy\nnumpy.float64(1.5)"), 1.5)

    def test_two_runners_never_draw_the_same_numbers_from_numpys_global_generator(self):
        other = Runner()
        self.addCleanup(other.close)
        draw = "import numpy\nnumpy.random.rand()"
        self.assertNotEqual(self.value_of(draw), other.run(draw).done["value"])

    def test_an_image_of_pillow_is_a_png(self):
        main = self.run_cell("from PIL import Image\nImage.new('RGB', (2, 2))").main
        self.assertTrue(base64.b64decode(main["image/png"]).startswith(b"\x89PNG"))


class Charts(RunnerTest):
    def setUp(self):
        if importlib.util.find_spec("plotly") is None:
            raise unittest.SkipTest("plotly is not installed")
        super().setUp()

    def test_a_plotly_figure_is_shown_by_show_and_as_last_value(self):
        mime = "application/vnd.plotly.v1+json"
        shown = self.run_cell("""
            import plotly.graph_objects as go
            fig = go.Figure(go.Scatter(y=[1, 2]))
            fig.show()
        """)
        self.assertEqual((shown.error, [mime in result["data"] for result in shown.results]), (None, [True]))
        self.assertIn(mime, self.run_cell("fig").main)
