import subprocess
import sys

print(subprocess.run("printf 'b\\na\\n' | sort | tr a-z A-Z", shell=True, capture_output=True, text=True).stdout)
print(subprocess.check_output([sys.executable, "-c", "import sys; print(sys.stdin.read()[::-1])"], input=b"abc"))
print(subprocess.run(["false"]).returncode, subprocess.run(["sh", "-c", "exit 5"]).returncode)
print(subprocess.run(["sh", "-c", "kill -9 $$"]).returncode)
try:
    subprocess.run(["sleep", "10"], timeout=0.1)
except subprocess.TimeoutExpired as error:
    print("timed out", error.cmd)
try:
    subprocess.run(["no-such-program"])
except FileNotFoundError as error:
    print(error)
with subprocess.Popen(["cat"], stdin=-1, stdout=-1, text=True) as process:
    print(process.communicate("x" * 100_000)[0] == "x" * 100_000, process.returncode)
print(subprocess.getstatusoutput("ls /usr >/dev/null && echo ok"))
