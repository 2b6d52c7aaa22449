"""What matplotlib's Agg backend does differently in a sandbox: it sends figures to the runner when they are shown.

The runner imports this after Agg itself. A process without a runner, such as a subprocess, does not import it, and
showing a figure does nothing, as with plain Agg.
"""

import functools
import os
from types import ModuleType

from belljar_runner import figures as _figures
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.figure import Figure


class FigureManager(FigureManagerBase):
    def show(self):
        _figures.show(self.canvas.figure)

    @classmethod
    def pyplot_show(cls, *args, **kwargs):
        _figures.show_all()


def patch(backend_agg: ModuleType) -> None:
    backend_agg.FigureCanvasAgg.manager_class = FigureManager
    # On the figure and not on the canvas, because another backend's canvas may save the figure.
    Figure.draw = _noticing_changes(Figure.draw)
    Figure.savefig = _noticing_files(Figure.savefig)


def _noticing_changes(draw):
    @functools.wraps(draw)
    def draw_and_notice(figure, *args, **kwargs):
        _figures.mark_drawn(figure)
        return draw(figure, *args, **kwargs)

    return draw_and_notice


def _noticing_files(savefig):
    """A figure that was saved to a file is already an artifact; it counts as seen until it changes again."""

    @functools.wraps(savefig)
    def save_and_notice(figure, fname, *args, **kwargs):
        result = savefig(figure, fname, *args, **kwargs)
        if isinstance(fname, (str, os.PathLike)):
            _figures.mark_seen(figure)
        return result

    return save_and_notice
