import getpass
import os
import platform
import pwd
import shutil
import socket
import sys
import sysconfig

print(bool(getpass.getuser()), pwd.getpwuid(os.getuid()).pw_uid == os.getuid(), bool(socket.gethostname()))
print(platform.system(), platform.machine(), platform.python_version(), platform.python_implementation())
print(os.cpu_count() >= 1, len(os.sched_getaffinity(0)) >= 1, os.getpid() > 1, os.getloadavg()[0] >= 0 if os.path.exists("/proc/loadavg") else True)
print(sys.version_info[:3], sys.platform, sys.byteorder, sys.maxsize, sys.flags.dev_mode, sys.flags.optimize)
print(os.path.isdir(os.path.expanduser("~")), os.access(os.getcwd(), os.W_OK), os.sep, os.linesep.encode())
print(bool(shutil.which("sh")), os.path.exists(sys.executable), bool(sysconfig.get_paths()["stdlib"]))
print(len(os.urandom(8)), os.umask(0o022) == 0o022, os.get_terminal_size is not None, shutil.get_terminal_size((80, 24)).columns > 0)
print(os.uname().sysname, os.getpgrp() > 0, os.nice(0) - os.getpriority(os.PRIO_PROCESS, 0))
