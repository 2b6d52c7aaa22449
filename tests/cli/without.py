"""Makes an isolation layer unavailable: installs a seccomp filter that refuses its system calls, then runs a command.

    python3 without.py landlock|seccomp|namespaces COMMAND...
"""

import ctypes
import errno
import os
import struct
import sys

PR_SET_NO_NEW_PRIVS = 38
PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2
SECCOMP_RET_ERRNO = 0x00050000
SECCOMP_RET_ALLOW = 0x7FFF0000
SECCOMP_SET_MODE_FILTER = 1
CLONE_NEWUSER = 0x10000000
NUMBER, FIRST_ARGUMENT = 0, 16  # in struct seccomp_data
CALLS = {  # unshare, seccomp
    "x86_64": {"unshare": 272, "seccomp": 317},
    "aarch64": {"unshare": 97, "seccomp": 277},
}[os.uname().machine] | {"clone3": 435, "landlock_create_ruleset": 444}


def load(offset):
    return struct.pack("HBBI", 0x20, 0, 0, offset)


def unless_equal(value, skip):
    return struct.pack("HBBI", 0x15, 0, skip, value)


def unless_any_bit(bits, skip):
    return struct.pack("HBBI", 0x45, 0, skip, bits)


def answer(value):
    return struct.pack("HBBI", 0x06, 0, 0, value)


def refuse(call, error):
    return [load(NUMBER), unless_equal(CALLS[call], 1), answer(SECCOMP_RET_ERRNO | error)]


def refuse_if(call, test, error):
    return [load(NUMBER), unless_equal(CALLS[call], 3), load(FIRST_ARGUMENT), test, answer(SECCOMP_RET_ERRNO | error)]


FILTERS = {
    "landlock": refuse("landlock_create_ruleset", errno.ENOSYS),
    "seccomp": refuse_if("seccomp", unless_equal(SECCOMP_SET_MODE_FILTER, 1), errno.EPERM),
    # The flags of clone3 are behind a pointer, which is why container runtimes refuse all of it.
    "namespaces": refuse("clone3", errno.ENOSYS) + refuse_if("unshare", unless_any_bit(CLONE_NEWUSER, 1), errno.EPERM),
}


def main():
    program = FILTERS[sys.argv[1]] + [answer(SECCOMP_RET_ALLOW)]
    instructions = ctypes.create_string_buffer(b"".join(program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program), ctypes.addressof(instructions)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, 0, 0):
        raise OSError(ctypes.get_errno(), "the filter was not installed")
    os.execvp(sys.argv[2], sys.argv[2:])


main()
