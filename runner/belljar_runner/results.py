"""Values as display data, by MIME type."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from . import figures
from .channel import MAX_DATA_BYTES, MAX_FRAME_BYTES, encode, utf8
from .json_value import strict_json
from .report import explain, note, text_of

# Larger forms are not even measured: data that contains the same part twice at every level has no end.
_MAX_WALK_BYTES = 2 * MAX_FRAME_BYTES

_METHODS = {
    "text/html": "_repr_html_",
    "image/png": "_repr_png_",
    "image/svg+xml": "_repr_svg_",
    "text/markdown": "_repr_markdown_",
    "text/latex": "_repr_latex_",
    "application/json": "_repr_json_",
}
_WITHOUT_METHODS = frozenset((int, float, complex, bool, str, bytes, list, tuple, dict, set, frozenset, type, range))


def bundle(value: Any) -> dict[str, Any]:
    """All forms of a value. One that fails is left out with a note on stderr; the text form is always present."""
    data = {"text/plain": text_of(value)}
    kind = type(value)
    if kind in _WITHOUT_METHODS:
        return data
    # Looked up on the type: an object that answers every attribute, such as a mock, has only its repr.
    if hasattr(kind, "_repr_mimebundle_"):
        data.update(_mimebundle(value))
    for mime, method in _METHODS.items():
        if mime not in data and hasattr(kind, method):
            form = _attempt(value, method)
            if form is not None:
                data[mime] = form[0] if isinstance(form, tuple) else form
    if "image/png" not in data and figures.is_figure(value):
        data.update(_drawn(value))
    return data


def _mimebundle(value: Any) -> dict[str, Any]:
    forms = _attempt(value, "_repr_mimebundle_")
    if isinstance(forms, tuple):  # with metadata
        forms = forms[0]
    if not isinstance(forms, dict):
        return {}
    return {str(mime): form for mime, form in forms.items() if form is not None}


def _attempt(value: Any, method: str) -> Any:
    try:
        return getattr(value, method)()
    except Exception as problem:
        note(f"{method} of {type(value).__qualname__} failed: {explain(problem)}")
        return None


def _drawn(figure: Any) -> dict[str, Any]:
    try:
        return {"image/png": figures.render(figure)}
    except Exception as problem:
        note(f"the figure could not be drawn: {explain(problem)}")
        return {}


def frame(data: dict[str, Any], limit: int, *, main: bool) -> bytes:
    """The result frame. Forms that do not fit, largest first, are replaced by their size."""
    limit = min(limit, MAX_DATA_BYTES)
    forms, dropped = _encode_forms(data, limit)
    while sum(map(len, forms.values())) > limit:
        largest = max(forms, key=lambda mime: len(forms[mime]))
        dropped[largest] = len(forms.pop(largest))
    if dropped and "text/plain" not in forms:
        forms["text/plain"] = utf8(encode(_too_large_note(dropped, limit)))
    body = b",".join(utf8(encode(mime)) + b":" + form for mime, form in forms.items())
    tail = b',"dropped":' + utf8(encode(dropped)) if dropped else b""
    return b'{"ev":"result","data":{%b},"main":%b%b}' % (body, b"true" if main else b"false", tail)


def _encode_forms(data: dict[str, Any], limit: int) -> tuple[dict[str, bytes], dict[str, int]]:
    forms, dropped = {}, {}
    for mime, form in data.items():
        if isinstance(form, str) and len(form) > limit:
            dropped[mime] = len(form)  # at least; encoding a huge text to learn more would take its size again
        elif encoded := _encoded(mime, form):
            forms[mime] = encoded
    return forms, dropped


def _encoded(mime: str, form: Any) -> bytes:
    if isinstance(form, (bytes, bytearray, memoryview)):
        form = b64encode(form).decode()
    try:
        return utf8(encode(form)) if isinstance(form, str) else strict_json(form, _MAX_WALK_BYTES)
    except Exception as problem:
        note(f"the {mime} form of the result is left out: {problem}")
        return b""


def _too_large_note(dropped: dict[str, int], limit: int) -> str:
    sizes = ", ".join(f"{mime} has {size} bytes" for mime, size in dropped.items())
    return f"<result too large to show: {sizes}, the limit is {limit}; write it to a file or show a part of it>"
