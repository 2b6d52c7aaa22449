"""The matplotlib backend of the sandbox, chosen by MPLBACKEND=module://belljar_mpl.

It draws with Agg and hands figures to the kernel when they are shown. In a process without a kernel, such as a
subprocess, showing a figure does nothing.
"""

import functools
import os
import sys

from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

_kernel = sys.modules.get("belljar_kernel.figures")


class FigureManager(FigureManagerBase):
    def show(self):
        if _kernel is not None:
            _kernel.show(self.canvas.figure)

    @classmethod
    def pyplot_show(cls, *args, **kwargs):
        if _kernel is not None:
            _kernel.show_all()


class FigureCanvas(FigureCanvasAgg):
    manager_class = FigureManager


def _noticing_changes(draw):
    @functools.wraps(draw)
    def draw_and_notice(figure, *args, **kwargs):
        _kernel.mark_drawn(figure)
        return draw(figure, *args, **kwargs)

    return draw_and_notice


def _noticing_files(savefig):
    """A figure written to a file is an artifact already; it counts as seen until it changes again."""

    @functools.wraps(savefig)
    def save_and_notice(figure, fname, *args, **kwargs):
        result = savefig(figure, fname, *args, **kwargs)
        if isinstance(fname, (str, os.PathLike)):
            _kernel.mark_seen(figure)
        return result

    return save_and_notice


if _kernel is not None:
    # On the figure and not on the canvas above, because much code says matplotlib.use("Agg") before it plots.
    Figure.draw = _noticing_changes(Figure.draw)
    Figure.savefig = _noticing_files(Figure.savefig)
