"""Lets plotly's `fig.show()` reach the runner.

plotly sends figures by MIME type only through IPython, and otherwise opens a browser. It has no setting for anything
else, so the two names that it uses are replaced as soon as the user, or the zygote, has imported it.
"""

from __future__ import annotations

import builtins
from types import ModuleType, SimpleNamespace

from .after_import import after_import


def install() -> None:
    after_import("plotly.io._renderers", _patch)


def _patch(renderers: ModuleType) -> None:
    renderers.ipython_display = SimpleNamespace(display=lambda data, raw: builtins.display(data, raw=raw))
    renderers.nbformat = SimpleNamespace(__version__="5.0")  # only its age is asked for
    renderers.renderers.default = "plotly_mimetype"
