import sys
import warnings

warnings.showwarning = lambda message, category, filename, lineno, file=None, line=None: print(
    category.__name__, message, lineno, file=sys.stderr
)
warnings.warn("a user warning")
warnings.warn("ignored in imported code, shown in main", DeprecationWarning)
warnings.warn("resources are quiet", ResourceWarning)
for _ in range(2):
    warnings.warn("once per line")
