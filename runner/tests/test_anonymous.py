"""Anonymous shared memory by a file, where the filter refuses the real one."""

from __future__ import annotations

import mmap
import os
import unittest
from unittest import mock

from belljar_runner import anonymous


class Anonymous(unittest.TestCase):
    def setUp(self) -> None:
        self.addCleanup(setattr, mmap, "mmap", mmap.mmap)
        anonymous.install()

    def test_it_is_the_same_class_to_whoever_asks(self) -> None:
        view = mmap.mmap(-1, 4096)
        self.assertIsInstance(view, mmap.mmap)
        self.assertEqual(repr(type(view)), "<class 'mmap.mmap'>")

    def test_where_nothing_is_refused_no_file_is_used(self) -> None:
        with mock.patch("os.open") as opened:
            self.assertEqual(len(mmap.mmap(-1, 8192)), 8192)
        opened.assert_not_called()

    def test_what_is_refused_becomes_a_file_that_children_share(self) -> None:
        view = _refused_once(-1, 8192, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
        if os.fork() == 0:
            view[:1] = b"c"
            os._exit(0)
        os.wait()
        self.assertEqual((view[:2], len(view)), (b"c\0", 8192))

    def test_a_refusal_of_a_file_stays_one(self) -> None:
        with self.assertRaises(PermissionError), open(os.devnull, "rb") as file:
            _refused_once(file.fileno(), 4096)


def _refused_once(*arguments: int) -> mmap.mmap:
    """As the filter would: the first mapping is refused."""
    plain, refused = anonymous._Plain.__new__, []

    class Refusing(anonymous._Plain):
        def __new__(cls, *given: int) -> Refusing:
            if not refused:
                refused.append(given)
                raise PermissionError(1, "Operation not permitted")
            return plain(cls, *given)

    class Counted(anonymous._Counted, Refusing):
        pass

    return Counted(*arguments)


if __name__ == "__main__":
    unittest.main()
