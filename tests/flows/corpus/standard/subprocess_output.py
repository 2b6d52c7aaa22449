import os
import subprocess
import sys

print("first", flush=True)
subprocess.run(["echo", "second"])
os.system("echo third")
print("fourth", flush=True)
os.write(1, b"fifth\n")
sys.stdout.buffer.write(b"sixth\n")
sys.stdout.flush()
subprocess.run([sys.executable, "-c", "print('seventh')"])
os.popen("echo eighth").close()
print(os.popen("echo ninth").read(), end="")
