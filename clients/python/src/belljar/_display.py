"""How results look in a notebook.

The output of a sandbox comes from untrusted code, and a notebook runs the scripts of
the HTML that it shows. So HTML of a sandbox is shown only inside a frame that runs nothing and
loads nothing, images only as images, and text without the characters that steer a terminal.
"""

from __future__ import annotations

import base64
import re
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING, Any

from ._errors import BelljarError

if TYPE_CHECKING:
    from ._models import Execution, File, Result

# Formats that cannot carry scripts; an SVG can, and is one only within <img>.
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
# A chart is far smaller; showing more would fill the notebook's file.
_SHOWN_BYTES_MAX = 8 * 1024 * 1024
_FRAME_PIXELS = 320
_FRAME_POLICY = (
    '<meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


def text_of(data: dict[str, Any]) -> str:
    return str(data.get("text/plain", ""))


def of_result(result: Result) -> dict[str, Any]:
    bundle = {"text/plain": _plain(text_of(result.data))}
    html = _html_of(result.data)
    if html is not None:
        bundle["text/html"] = html
    return bundle | _images(result.data)


def of_file(file: File) -> dict[str, Any]:
    bundle = {"text/plain": _plain(f"{file.name} ({file.mime}, {file.size} bytes)")}
    if file.mime in _IMAGES and file.size <= _SHOWN_BYTES_MAX and file._load is not None:
        # A file that is gone meanwhile is still worth its name.
        with suppress(BelljarError):
            bundle[file.mime] = base64.b64encode(file._load()).decode()
    return bundle


def of_execution(run: Execution) -> dict[str, Any]:
    bundle = {"text/plain": _plain("\n".join(_texts(run)))}
    if any(_html_of(result.data) for result in run.results):
        shown = [_html_of(result.data) or _pre(result.text) for result in run.results]
        bundle["text/html"] = "".join([_pre(run.stdout), _pre(run.stderr), *shown, _pre(_why(run))])
        bundle |= _images(run.results[-1].data)
    return bundle


def _texts(run: Execution) -> list[str]:
    results = [result.text for result in run.results]
    texts = [run.stdout.rstrip("\n"), run.stderr.rstrip("\n"), *results, _why(run)]
    return [text for text in texts if text] or [f"{run.status}, without output"]


def _why(run: Execution) -> str:
    error = run.error
    if error is None:
        return ""
    text = error.traceback or f"{error.code}: {error.message}"
    return f"{text.rstrip()}\n{error.hint}" if error.hint else text.rstrip()


def _html_of(data: dict[str, Any]) -> str | None:
    """The richest form that is safe; `None` if that is plain text."""
    for mime, image in _images(data).items():
        return f'<img src="data:{mime};base64,{escape(image)}">'
    if "image/svg+xml" in data:
        svg = base64.b64encode(str(data["image/svg+xml"]).encode()).decode()
        return f'<img src="data:image/svg+xml;base64,{svg}">'
    if "text/html" in data:
        page = escape(_FRAME_POLICY + str(data["text/html"]))
        style = f"width:100%;height:{_FRAME_PIXELS}px;border:0;resize:vertical"
        return f'<iframe sandbox srcdoc="{page}" style="{style}"></iframe>'
    return None


def _images(data: dict[str, Any]) -> dict[str, str]:
    return {mime: str(data[mime]) for mime in _IMAGES if mime in data}


def _pre(text: str) -> str:
    return f"<pre>{escape(_plain(text))}</pre>" if text else ""


def _plain(text: str) -> str:
    return _CONTROLS.sub("", _ANSI.sub("", text))
