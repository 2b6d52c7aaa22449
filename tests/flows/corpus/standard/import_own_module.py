import importlib
import os
import pathlib
import shutil
import sys

pathlib.Path("corpus_helper.py").write_text("VALUE = 1\ndef f():\n    return __name__\n")
pathlib.Path("corpus_pkg/inner").mkdir(parents=True)
pathlib.Path("corpus_pkg/__init__.py").write_text("from .inner import deep\n")
pathlib.Path("corpus_pkg/inner/__init__.py").write_text("deep = 'deep'\n")
importlib.invalidate_caches()
import corpus_helper
import corpus_pkg

print(corpus_helper.VALUE, corpus_helper.f(), corpus_pkg.deep)
pathlib.Path("corpus_helper.py").write_text("VALUE = 200\n")
os.utime("corpus_helper.py", (1, 1))
print(importlib.reload(corpus_helper).VALUE)
os.remove("corpus_helper.py")
shutil.rmtree("corpus_pkg")
shutil.rmtree("__pycache__", ignore_errors=True)
print("corpus_helper" in sys.modules)
