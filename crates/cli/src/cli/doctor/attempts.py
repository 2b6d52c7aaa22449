"""Tries from inside what each isolation layer forbids. Put after a line that sets HOST, and run as one cell.

An attempt returns the observed result. `Open` reports that a layer did not hold. Any unexpected error is reported as
`Open` too, because only the expected error proves a layer.
"""

import ctypes
import errno
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading

CLONE_NEWUSER = 0x10000000
PTRACE_TRACEME = 0
PTRACE_ATTACH = 16
AF_VSOCK = 40
TEST_NET = "192.0.2.1"  # no host has this address

libc = ctypes.CDLL(None, use_errno=True)


class Open(Exception):
    """The isolation layer did not hold."""


def refused(what, action, *answers):
    try:
        action()
    except OSError as error:
        answer = errno.errorcode.get(error.errno, str(error.errno))
        if answer in answers:
            return f"{what}: {answer}"
        raise Open(f"{what}: {error}") from None
    raise Open(f"{what}: was possible")


def call(name, *arguments):
    if getattr(libc, name)(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def in_child(action):
    """Runs an attempt in a child, because a success would change the process. Without processes it runs here."""
    if not HOST["has_processes"]:
        return action()
    child = os.fork()
    if child == 0:
        try:
            action()
        except OSError as error:
            os._exit(error.errno)
        os._exit(0)
    number = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if number:
        raise OSError(number, os.strerror(number))


def status(field):
    with open("/proc/self/status") as lines:
        return dict(line.rstrip("\n").split(":\t", 1) for line in lines if ":\t" in line)[field]


# What must be refused.


def host_files():
    refused("a file of yours", lambda: open(HOST["canary"]), "ENOENT", "EACCES")
    refused("/root", lambda: os.listdir("/root"), "ENOENT")
    return refused("/etc/shadow", lambda: open("/etc/shadow"), "ENOENT")


def read_only():
    for directory in ("/usr/lib", "/etc", "/opt/env", "/"):
        met = refused(directory, lambda: open(f"{directory}/doctor", "w"), "EROFS", "EACCES")
    return met


def landlock():
    # Only Landlock stands between a process and its own entries in /proc.
    return refused("/proc/self/comm", lambda: open("/proc/self/comm", "w"), "EACCES")


def mount():
    return refused("mount", lambda: call("mount", b"none", b"/workspace", b"tmpfs", 0, None), "EPERM", "ENOSYS")


def user_namespace():
    # ENOSPC comes from a limit of zero, which is the second layer here.
    return refused("unshare", lambda: in_child(lambda: call("unshare", CLONE_NEWUSER)), "EPERM", "ENOSYS", "ENOSPC")


def other_namespace():
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    return refused("setns", lambda: call("setns", own, 0), "EPERM", "ENOSYS")


def processes():
    seen = {int(name) for name in os.listdir("/proc") if name.isdigit()}
    if seen - {1, os.getpid()}:
        raise Open(f"sees {sorted(seen)}")
    return f"sees {len(seen)}"


def signals():
    try:
        os.kill(1, signal.SIGKILL)
    except PermissionError:
        return "kill: EPERM"
    return "kill: without effect"  # otherwise this process would be gone


def ptrace():
    refused("ptrace", lambda: call("ptrace", PTRACE_ATTACH, 1, None, None), "EPERM", "ENOSYS")
    return refused("ptrace", lambda: in_child(lambda: call("ptrace", PTRACE_TRACEME, 0, None, None)), "EPERM", "ENOSYS")


def socket_families():
    families = {"NETLINK": socket.AF_NETLINK, "PACKET": socket.AF_PACKET, "VSOCK": AF_VSOCK, "ALG": socket.AF_ALG}
    for name, family in families.items():
        answers = "EPERM", "EACCES", "EAFNOSUPPORT", "ENOSYS"
        met = refused(name, lambda: socket.socket(family, socket.SOCK_RAW if name == "NETLINK" else socket.SOCK_DGRAM), *answers)
    return met


def connect(family, address):
    with socket.socket(family) as caller:
        caller.settimeout(2)
        caller.connect(address)


def network():
    refused("the host's port", lambda: connect(socket.AF_INET, ("127.0.0.1", HOST["port"])), "ECONNREFUSED")
    refused("the host's socket", lambda: connect(socket.AF_UNIX, "\0" + HOST["socket"]), "ECONNREFUSED", "EPERM")
    return refused("connect", lambda: connect(socket.AF_INET, (TEST_NET, 80)), "ENETUNREACH", "EACCES", "EPERM")


def identity():
    if os.getuid() == 0:
        raise Open("is root")
    return refused("setuid", lambda: os.setuid(0), "EPERM", "EINVAL", "ENOSYS")


def capabilities():
    for field in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        if int(status(field), 16):
            raise Open(f"{field} is {status(field)}")
    return "all zero"


def expect(field, value):
    if status(field).strip() != value:
        raise Open(f"{field} is {status(field)}")
    return f"{field}: {value}"


def seccomp():
    return expect("Seccomp", "2")


def no_new_privs():
    return expect("NoNewPrivs", "1")


def rlimits():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))
    except (ValueError, OSError) as error:
        return f"setrlimit: {type(error).__name__}"
    raise Open("setrlimit: was possible")


def process_limit():
    children = []
    try:
        while len(children) <= HOST["processes"]:
            child = os.fork()
            if child == 0:
                signal.pause()
            children.append(child)
    except BlockingIOError:
        return f"fork: EAGAIN after {len(children)}"
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    raise Open(f"{len(children)} processes are possible")


def no_processes():
    """Bypasses the guidance in the runner, which also refuses but is not an isolation layer."""
    arguments = (ctypes.c_char_p * 2)(b"true", None)
    refused("execve", lambda: call("execve", b"/bin/true", arguments, None), "EPERM")
    return refused("fork", native_fork, "EPERM")


def native_fork():
    child = libc.fork()
    if child == 0:
        os._exit(0)
    if child == -1:
        raise OSError(ctypes.get_errno(), "fork")


def disk_limit():
    written = 0
    try:
        with open("/workspace/full", "wb", buffering=0) as file:
            while written <= HOST["disk_bytes"]:
                written += file.write(bytes(65536))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return f"write: ENOSPC after {written >> 10} KiB"
    finally:
        os.remove("/workspace/full")
    raise Open(f"{written} bytes are possible")


def inode_limit():
    names = [f"/workspace/{number}" for number in range(HOST["disk_inodes"] + 1)]
    try:
        for count, name in enumerate(names):
            os.close(os.open(name, os.O_CREAT))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return f"open: ENOSPC after {count}"
    finally:
        for name in names:
            if os.path.exists(name):
                os.remove(name)
    raise Open(f"{len(names)} files are possible")


# What must work all the same.


def workspace():
    with open("/workspace/doctor.txt", "w") as file:
        file.write("well")
    with open("/workspace/doctor.txt") as file:
        if file.read() == "well":
            return "written and read"
    raise Open("reads something else")


def loopback():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as caller:
        caller.sendall(b"well")
        with server.accept()[0] as guest:
            return f"received {guest.recv(4).decode()}"


def child_process():
    run = subprocess.run([sys.executable, "-c", "print('well')"], capture_output=True, text=True, check=True)
    return f"printed {run.stdout.strip()}"


def thread():
    heard = []
    worker = threading.Thread(target=heard.append, args=("well",))
    worker.start()
    worker.join()
    return f"said {heard[0]}"


for name in HOST["attempts"]:
    try:
        answer = {"proved": True, "evidence": globals()[name]()}
    except Exception as problem:
        text = str(problem) if isinstance(problem, Open) else f"{type(problem).__name__}: {problem}"
        answer = {"proved": False, "evidence": text}
    print(json.dumps({"name": name, **answer}), flush=True)
