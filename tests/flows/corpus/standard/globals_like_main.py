import __main__
import builtins
import sys

value = 1
print(__main__.value, sys.modules["__main__"] is __main__, __builtins__ is builtins, __annotations__ if sys.version_info < (3, 14) else {})
print(sorted(name for name in globals() if name not in ("__annotations__", "__cached__", "__conditional_annotations__")))
print(__spec__, __package__, __name__)
x: int = 3
print(hasattr(builtins, "exit"), hasattr(builtins, "quit"), hasattr(builtins, "copyright"), hasattr(builtins, "help"))
