# Every way to change a file, tried on files that all sandboxes share; then, as its twin, on a file of one's own.
import mmap


def map_and_change(path):
    fd = os.open(path, os.O_RDONLY)
    with mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE) as pages:
        pages[0] = pages[0]


def reopen(path):
    fd = os.open(path, os.O_RDONLY)
    os.close(os.open(f"/proc/self/fd/{fd}", os.O_RDWR))


def fallocate(path):
    os.posix_fallocate(os.open(path, os.O_RDWR), 0, 1)


def map_own(path):
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as pages:
        pages[0] = pages[0]


def link_here(path):
    os.link(path, "/workspace/link")


def rename_twice(path):
    os.rename(path, path + ".moved")
    os.rename(path + ".moved", path)


def replace(path):
    os.symlink("/dev/null", path + ".new")
    os.unlink(path + ".new")


def poison(path):
    cache = os.path.join(os.path.dirname(path), "__pycache__")
    os.makedirs(cache, exist_ok=True)
    create(os.path.join(cache, "poison.pyc"))


WAYS = [
    lambda path: write(path),
    lambda path: os.truncate(path, 1),
    lambda path: os.chmod(path, 0o777),
    lambda path: os.utime(path),
    lambda path: os.setxattr(path, "user.t06", b"x"),
    map_and_change,
    reopen,
    fallocate,
    link_here,
    rename_twice,
    replace,
    poison,
]
SHARED = [
    os.path.realpath(sys.executable),
    os.path.join(sys.prefix, "pyvenv.cfg"),
    os.path.join(sys.prefix, "bin", "python"),
    os.__file__,
    json.__file__,
    "/opt/belljar/runner/zygote.py",
    "/opt/belljar/runner/belljar_runner/session.py",
    "/opt/belljar/lib/libbelljar_jail.so",
    "/opt/belljar/site/belljar_mpl.py",
]
for place in (sys.prefix, os.path.dirname(os.__file__), "/opt/belljar/runner", "/opt/belljar/site"):
    for name in ("usercustomize.py", "evil.pth", "t06.py"):
        WAYS.append(lambda _, path=os.path.join(place, name): create(path))
print("refused:", *sorted({outcome(lambda: way(path)) for path in SHARED for way in WAYS}))

own = "/workspace/own.py"
with open(own, "w") as file:
    file.write("x = 1\n")
# Only what is open for writing can be mapped so.
ours = [map_own if way is map_and_change else way for way in WAYS[:12]]
print("in the workspace:", *(outcome(lambda: way(own)) for way in ours))
