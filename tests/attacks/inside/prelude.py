import _socket, ctypes, errno, fcntl, json, os, resource, signal, socket, stat, struct, sys, time

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def syscall(number, *arguments):
    """Any system call at all, with integers, bytes and buffers as arguments."""
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result = _libc.syscall(ctypes.c_long(number), *words)
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def outcome(action):
    try:
        action()
    except OSError as refusal:
        return errno.errorcode.get(refusal.errno, type(refusal).__name__)
    except Exception as other:
        return type(other).__name__
    return "ok"


def report(expressions):
    print(json.dumps([outcome(lambda: eval(one, globals())) for one in expressions]))


def read(path):
    with open(path, "rb") as file:
        return file.read(64)


def look(path):
    """Whatever it is: where it leads, what is in it, or how it begins."""
    if os.path.islink(path):
        return os.readlink(path)
    if os.path.isdir(path):
        return os.listdir(path)
    return read(path)


def write(path, content=b"x"):
    """Into something that is there already."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)


def create(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))


def in_child(action):
    """The errno with which a forked child could not do it, or None if it could."""
    pid = os.fork()
    if pid == 0:
        try:
            action()
        except OSError as refusal:
            os._exit(refusal.errno)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status:
        raise OSError(status, os.strerror(status))
