"""Types at a real terminal: runs a command on a pseudo-terminal and follows a script of steps.

    python3 typist.py STEPS COMMAND...

STEPS is JSON: [[EXPECTED, KEYS], ...]. Each step waits until EXPECTED is on the screen, after what the last step
waited for, and then types KEYS. All that was shown is printed. The exit code is the command's, or 99 for a step that
waited in vain.
"""

import fcntl
import json
import os
import pty
import select
import struct
import sys
import termios
import time

PATIENCE_S = 30


def main():
    steps, command = json.loads(sys.argv[1]), sys.argv[2:]
    child, terminal = pty.fork()
    if child == 0:
        os.environ["TERM"] = "xterm"
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    shown, seen = b"", 0
    deadline = time.monotonic() + PATIENCE_S
    while True:
        while steps and (at := shown.find(steps[0][0].encode(), seen)) != -1:
            expected, keys = steps.pop(0)
            seen = at + len(expected.encode())
            os.write(terminal, keys.encode())
            deadline = time.monotonic() + PATIENCE_S
        if not select.select([terminal], [], [], max(0, deadline - time.monotonic()))[0]:
            break
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # nobody is at the other end any more
            break
        shown += piece
    sys.stdout.buffer.write(shown)
    if steps:
        sys.stderr.write(f"waited in vain for {steps[0][0]!r}\n")
        os.close(terminal)
        sys.exit(99)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


main()
