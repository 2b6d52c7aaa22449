import os
import sys

sys.stdout.flush()
if os.fork() == 0:
    os.execvp("echo", ["echo", "replaced"])
os.wait()
print(os.waitstatus_to_exitcode(os.posix_spawnp("true", ["true"], os.environ) and os.wait()[1]))
print(os.waitstatus_to_exitcode(os.system("exit 3")))
print(os.spawnlp(os.P_WAIT, "sh", "sh", "-c", "exit 6"))
