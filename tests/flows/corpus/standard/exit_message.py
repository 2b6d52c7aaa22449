import sys

print("out")
sys.exit("a message goes to stderr")
