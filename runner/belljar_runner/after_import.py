"""Runs a callback as soon as user code has imported a module, without importing it here."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


def after_import(name: str, patch: Callable[[ModuleType], None]) -> None:
    if name in sys.modules:
        patch(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Watcher(name, patch))


class _Watcher(MetaPathFinder):
    def __init__(self, name: str, patch: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._patch = patch

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            self._patch_after_loading(spec.loader)
        return spec

    def _patch_after_loading(self, loader: Any) -> None:
        load = loader.exec_module

        def load_and_patch(module: ModuleType) -> None:
            load(module)
            # Only after success: an import that fails may be retried.
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            self._patch(module)

        loader.exec_module = load_and_patch
