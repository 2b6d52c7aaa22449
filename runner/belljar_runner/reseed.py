"""New randomness for a process that was forked from the zygote.

Two sandboxes of one zygote must never draw the same number. OpenSSL notices a fork only by a changed pid, and two
sandboxes in their own pid namespaces have the same one; numpy's global generator does not notice at all. So every
state is renewed by name and the names are reported: a sandbox that cannot do this must not serve.
"""

from __future__ import annotations

import os
import random
import sys
from ctypes import c_int, memmove
from types import ModuleType


# The state of numpy's global generator: 624 words, and how many of them are used up.
_MT19937_WORDS = 624
_MT19937_BYTES = 4 * _MT19937_WORDS


def prepare() -> None:
    """In the zygote: brings every generator into the state from which `reseed` is fast."""
    for _, module, renew in _RENEWALS:
        if module in sys.modules:
            renew(sys.modules[module])
    if "numpy.random.mtrand" in sys.modules:
        # Also discards the second half of a pair of normal numbers.
        sys.modules["numpy.random.mtrand"].seed()


def reseed() -> list[str]:
    random.seed()
    done = ["random"]
    for name, module, renew in _RENEWALS:
        if module in sys.modules:
            renew(sys.modules[module])
            done.append(name)
    return done


def _numpy(mtrand: ModuleType) -> None:
    """Replaces the state by random words. numpy's own seeding takes 0.6 ms in a newly forked process."""
    generator = mtrand.get_bit_generator()
    if type(generator).__name__ != "MT19937":
        raise RuntimeError(f"numpy's global generator is a {type(generator).__name__}, which is not known here")
    state = generator.ctypes.state_address
    memmove(state, os.urandom(_MT19937_BYTES), _MT19937_BYTES)
    c_int.from_address(state + _MT19937_BYTES).value = _MT19937_WORDS


def _ssl(ssl: ModuleType) -> None:
    ssl.RAND_add(os.urandom(64), 64.0)


def _tempfile(tempfile: ModuleType) -> None:
    tempfile._name_sequence = None


def _uuid(uuid: ModuleType) -> None:
    for state in ("_node", "_last_timestamp", "_last_timestamp_v7"):
        if hasattr(uuid, state):
            setattr(uuid, state, None)
    # libuuid keeps its own clock sequence that cannot be renewed; Python's implementation has none.
    uuid._generate_time_safe = None


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
