import os
import sys

reader, writer = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(reader)
    os.write(writer, b"from the child")
    os._exit(5)
os.close(writer)
print(os.read(reader, 100), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    print("child prints")
    sys.exit(4)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
sys.stdout.flush()
if os.fork() == 0:
    print("the child runs on to the end")
else:
    os.wait()
    print("and the parent as well")
