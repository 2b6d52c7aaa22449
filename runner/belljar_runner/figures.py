"""matplotlib figures as results.

A figure is shown when the user calls `show`, and otherwise at the end of the cell that changed it, unless the user has
just saved that state to a file. matplotlib sets a figure's `stale` flag when it changes and clears it when it draws,
even without showing it; so `belljar_mpl` tracks changes in `unseen`. This module never imports matplotlib.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from io import BytesIO
from types import ModuleType
from typing import Any

from .after_import import after_import

# Set by the session while it can send; elsewhere, as in a user's child process, showing a figure does nothing.
emit: Callable[[Any], None] | None = None

_UNSEEN = "_belljar_unseen"


def install() -> None:
    """Call this before pyplot is first used: it asks its backend only once how figures are shown."""
    after_import("matplotlib.backends.backend_agg", _patch)


def _patch(backend_agg: ModuleType) -> None:
    import belljar_mpl

    belljar_mpl.patch(backend_agg)


def is_figure(value: Any) -> bool:
    module = sys.modules.get("matplotlib.figure")
    return module is not None and isinstance(value, module.Figure)


def render(figure: Any) -> bytes:
    """The figure as PNG, cropped to its contents as in a notebook."""
    image = BytesIO()
    try:
        figure.canvas.print_figure(image, format="png", bbox_inches="tight")
    finally:
        mark_seen(figure)  # also when it cannot be drawn: once is enough to say so
    return image.getvalue()


def mark_drawn(figure: Any) -> None:
    """Call this before matplotlib draws a figure and clears its `stale` flag."""
    if figure.stale:
        setattr(figure, _UNSEEN, True)


def mark_seen(figure: Any) -> None:
    figure.stale = False
    setattr(figure, _UNSEEN, False)


def show(figure: Any) -> None:
    if emit is not None and len(figure.get_children()) > 1:  # the first child is the background
        emit(figure)


def show_all() -> None:
    """Implements `plt.show()`: sends every open figure and closes it, as if its window had been closed."""
    if emit is None:
        return
    for figure in _open_figures():
        show(figure)
        sys.modules["matplotlib.pyplot"].close(figure)


def show_changed() -> None:
    for figure in _open_figures():
        if figure.stale or getattr(figure, _UNSEEN, False):
            show(figure)


def _open_figures() -> list[Any]:
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    if helpers is None or not helpers.Gcf.figs:
        return []
    return [manager.canvas.figure for manager in helpers.Gcf.get_all_fig_managers()]
