import sys

try:
    input("a prompt? ")
except EOFError:
    print("nothing to read")
print(repr(sys.stdin.read()), list(sys.stdin))
