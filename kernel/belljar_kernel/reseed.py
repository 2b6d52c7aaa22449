"""New randomness for a process that was forked from the zygote.

Two sandboxes of one zygote must never draw the same number. OpenSSL notices a fork only by a changed pid, and two
sandboxes in their own pid namespaces have the same one; numpy's global generator does not notice at all. So every
state is renewed by name and the names are reported: a sandbox that cannot do this must not serve.
"""

from __future__ import annotations

import os
import random
import sys
from types import ModuleType


def reseed() -> list[str]:
    random.seed()
    done = ["random"]
    for name, module, renew in _RENEWALS:
        if module in sys.modules:
            renew(sys.modules[module])
            done.append(name)
    return done


def _numpy(mtrand: ModuleType) -> None:
    mtrand.seed()


def _ssl(ssl: ModuleType) -> None:
    ssl.RAND_add(os.urandom(64), 64.0)


def _tempfile(tempfile: ModuleType) -> None:
    tempfile._name_sequence = None


def _uuid(uuid: ModuleType) -> None:
    for state in ("_node", "_last_timestamp", "_last_timestamp_v7"):
        if hasattr(uuid, state):
            setattr(uuid, state, None)


def _multiprocessing(process: ModuleType) -> None:
    # The key that authenticates connections between processes is drawn when the module is imported.
    process.current_process().authkey = os.urandom(32)


_RENEWALS = (
    ("numpy", "numpy.random.mtrand", _numpy),
    ("ssl", "ssl", _ssl),
    ("tempfile", "tempfile", _tempfile),
    ("uuid", "uuid", _uuid),
    ("multiprocessing", "multiprocessing.process", _multiprocessing),
)
