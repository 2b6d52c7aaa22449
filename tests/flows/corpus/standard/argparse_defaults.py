import argparse

parser = argparse.ArgumentParser(prog="tool", description="A tool.")
parser.add_argument("--count", type=int, default=2)
parser.add_argument("names", nargs="*")
print(parser.parse_args([]), parser.parse_args(["--count", "3", "a", "b"]))
parser.print_usage()
parser.parse_args(["--count", "many"])
