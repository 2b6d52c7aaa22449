"""Lets plotly's `fig.show()` reach the kernel.

plotly sends figures by MIME type only through IPython, and otherwise looks for a browser. It has no setting for
anything else, so the two names it looks at are replaced as soon as the user, or the zygote, has imported it.
"""

from __future__ import annotations

import builtins
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType, SimpleNamespace
from typing import Any

_MODULE = "plotly.io._renderers"


def install() -> None:
    if _MODULE in sys.modules:
        _teach(sys.modules[_MODULE])
    else:
        sys.meta_path.insert(0, _Watcher())


class _Watcher(MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            _teach_after_loading(spec.loader)
        return spec


def _teach_after_loading(loader: Any) -> None:
    load = loader.exec_module

    def load_and_teach(module: ModuleType) -> None:
        load(module)
        _teach(module)

    loader.exec_module = load_and_teach


def _teach(renderers: ModuleType) -> None:
    renderers.ipython_display = SimpleNamespace(display=lambda data, raw: builtins.display(data, raw=raw))
    renderers.nbformat = SimpleNamespace(__version__="5.0")  # only its age is asked for
    renderers.renderers.default = "plotly_mimetype"
