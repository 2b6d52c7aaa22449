import doctest
import io
import sys
import unittest
from unittest import mock


def double(x):
    """
    >>> double(2)
    4
    >>> double("a")
    'aa'
    """
    return x * 2


class Test(unittest.TestCase):
    def test_double(self):
        self.assertEqual(double(3), 6)

    def test_fails(self):
        with self.assertRaises(TypeError):
            double(None)

    @unittest.skip("later")
    def test_skipped(self):
        raise AssertionError

    def test_mock(self):
        with mock.patch("os.getcwd", return_value="/nowhere"):
            import os

            self.assertEqual(os.getcwd(), "/nowhere")


program = unittest.main(argv=["x"], exit=False, testRunner=unittest.TextTestRunner(io.StringIO()))
print(program.result.testsRun, program.result.wasSuccessful(), len(program.result.skipped))
print(doctest.testmod())
