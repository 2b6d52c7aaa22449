"""Warm-up in the zygote: pages that it touches here, no sandbox has to touch again.

It leaves no trace: no figure, no name, no changed setting.
"""

from __future__ import annotations

import sys
from io import BytesIO

from . import report
from .session import warm_up_cell


def warm_up() -> None:
    warm_up_cell()
    _describe_an_error()
    if "pandas" in sys.modules:
        _group_a_table()
    if "matplotlib.pyplot" in sys.modules:
        _draw_a_figure()


def _describe_an_error() -> None:
    try:
        raise ValueError("warm-up")
    except ValueError as error:
        report.describe(error)


def _group_a_table() -> None:
    pandas = sys.modules["pandas"]
    table = pandas.DataFrame({"key": ["a", "b", "a"], "value": [1.0, 2.0, 3.0]})
    grouped = table.groupby("key").agg(["sum", "mean"])
    repr(grouped)
    grouped._repr_html_()


def _draw_a_figure() -> None:
    pyplot = sys.modules["matplotlib.pyplot"]
    figure, axes = pyplot.subplots()
    axes.plot([1, 2, 3], label="warm-up")
    axes.set_title("warm-up")
    axes.legend()
    figure.savefig(BytesIO(), format="png", bbox_inches="tight")
    pyplot.close(figure)
    # Fonts in matplotlib's cache keep their files open, and it drops them after a fork anyway.
    sys.modules["matplotlib.font_manager"]._get_font.cache_clear()
