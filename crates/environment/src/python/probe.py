"""Run by a candidate interpreter (-I): tells what it is, as one line of JSON.

Must run under Python 3.6 too, so that an old one is refused by its version and not by a traceback.
"""

import json
import os
import platform
import struct
import sys
import sysconfig

print(
    json.dumps(
        {
            "implementation": platform.python_implementation(),
            "version": list(sys.version_info[:3]),
            "release_level": sys.version_info[3],
            "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
            "pointer_bits": struct.calcsize("P") * 8,
            # In a virtual environment sys.executable is the environment's own; this is what it
            # was made from.
            "executable": os.path.realpath(getattr(sys, "_base_executable", sys.executable)),
            "prefix": os.path.realpath(sys.base_prefix),
            "stdlib": os.path.realpath(os.path.dirname(os.__file__)),
            "shared_library": bool(sysconfig.get_config_var("Py_ENABLE_SHARED")),
        }
    )
)
