import atexit
import sys

atexit.register(print, "registered first, runs last")
atexit.register(print, "registered last, runs first")
print("before")
sys.exit(3)
