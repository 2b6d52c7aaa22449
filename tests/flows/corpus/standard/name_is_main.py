import inspect
import os
import sys


def main():
    print("called", os.path.basename(__file__), os.path.basename(sys.argv[0]), sys.argv[1:])
    print(os.path.samefile(sys.path[0], os.path.dirname(os.path.abspath(__file__))))
    print(inspect.getsource(main).splitlines()[0])
    print(open(__file__).readline().strip())


if __name__ == "__main__":
    main()
