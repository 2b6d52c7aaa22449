from __future__ import annotations

from belljar import Belljar

PNG = (
    "import base64\n"
    "png = base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwC'\n"
    "    'AAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=')\n"
)
SHOWN = "class Shown:\n    def _repr_{kind}_(self): return {value}\nShown()"


def test_a_chart_shows_itself(bj: Belljar) -> None:
    run = bj.execute(PNG + "print('look')\n" + SHOWN.format(kind="png", value="png"))
    bundle = run._repr_mimebundle_()
    assert bundle["image/png"].startswith("iVBOR")
    assert bundle["text/html"].startswith('<pre>look\n</pre><img src="data:image/png;base64,iVBOR')
    assert run.results[0]._repr_mimebundle_()["image/png"] == bundle["image/png"]


def test_html_of_a_sandbox_runs_nothing_in_the_notebook(bj: Belljar) -> None:
    page = "<table><td>1</td></table><script>parent.x()</script>\"'"
    run = bj.execute(SHOWN.format(kind="html", value=repr(page)))
    html = run._repr_mimebundle_()["text/html"]
    assert html.startswith('<iframe sandbox srcdoc="&lt;meta http-equiv')
    assert "default-src &#x27;none&#x27;" in html
    assert "&lt;table&gt;" in html
    assert "<script" not in html
    assert html.count('"') == 4


def test_an_svg_is_an_image_and_nothing_else(bj: Belljar) -> None:
    drawing = "<svg xmlns='http://www.w3.org/2000/svg'><script>x()</script></svg>"
    bundle = bj.execute(SHOWN.format(kind="svg", value=repr(drawing)))._repr_mimebundle_()
    assert bundle["text/html"].startswith('<img src="data:image/svg+xml;base64,')
    assert "image/svg+xml" not in bundle


def test_a_failure_shows_its_traceback_and_plain_results_stay_plain(bj: Belljar) -> None:
    failed = bj.execute("print('a')\n1 / 0")._repr_mimebundle_()
    assert list(failed) == ["text/plain"]
    assert failed["text/plain"].startswith("a\nTraceback (most recent call last):")
    assert failed["text/plain"].endswith("ZeroDivisionError: division by zero")
    assert bj.execute("6 * 7")._repr_mimebundle_() == {"text/plain": "42"}
    assert bj.execute("x = 1")._repr_mimebundle_() == {"text/plain": "succeeded, without output"}


def test_text_of_a_sandbox_does_not_steer_a_terminal(bj: Belljar) -> None:
    run = bj.execute(r"print('\x1b[2J\x1b]0;title\x07red\x9b1m')")
    assert run._repr_mimebundle_()["text/plain"] == "]0;titlered1m"
    assert "\x1b[2J" in run.stdout


def test_a_file_that_is_an_image_shows_itself_and_another_only_its_name(bj: Belljar) -> None:
    run = bj.execute(PNG + "open('a.png', 'wb').write(png)\nopen('b.svg', 'w').write('<svg/>')")
    files = {file.name: file._repr_mimebundle_() for file in run.files}
    assert files["a.png"]["image/png"].startswith("iVBOR")
    assert files["b.svg"] == {"text/plain": "b.svg (image/svg+xml, 6 bytes)"}
