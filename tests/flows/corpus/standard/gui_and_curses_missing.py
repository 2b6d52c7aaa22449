import importlib

for name in ("readline", "curses", "dbm", "ensurepip", "venv", "lib2to3"):
    try:
        importlib.import_module(name)
        print(name, True)
    except ImportError as error:
        print(name, str(error).split(" (")[0])
