import contextlib
import io
import os
import sys

buffer = io.StringIO()
with contextlib.redirect_stdout(buffer):
    print("captured")
print(repr(buffer.getvalue()))
with contextlib.redirect_stderr(buffer):
    print("too", file=sys.stderr)
print(repr(buffer.getvalue()))
saved = os.dup(1)
with open("captured.txt", "w") as file:
    os.dup2(file.fileno(), 1)
    os.system("echo into a file")
    os.dup2(saved, 1)
print(open("captured.txt").read(), end="")
os.remove("captured.txt")
