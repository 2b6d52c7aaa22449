import fcntl
import io
import os
import shutil

print(open("/dev/null").read() == "", len(open("/dev/urandom", "rb").read(4)), open("/dev/zero", "rb").read(2))
with open("corpus-lock", "w+") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    fcntl.lockf(file, fcntl.LOCK_EX)
    file.write("locked")
    file.flush()
    os.fsync(file.fileno())
    os.posix_fallocate(file.fileno(), 0, 10_000)
    print(os.fstat(file.fileno()).st_size)
    os.ftruncate(file.fileno(), 3)
    shutil.copyfile("corpus-lock", "corpus-copy")
print(open("corpus-copy").read())
os.remove("corpus-lock")
os.remove("corpus-copy")
with io.open(os.pipe()[1], "wb", buffering=0) as pipe:
    print(pipe.write(b"x"), fcntl.fcntl(pipe, fcntl.F_GETFL) & os.O_ACCMODE)
print(os.path.realpath("/dev/fd") != "", os.listdir("/proc/self/fd") != [], open("/proc/self/stat").read().split()[0] == str(os.getpid()))
with open("/dev/stdout", "w") as out:
    out.write("through /dev/stdout\n")
os.eventfd(0)
print(os.path.exists("/dev/full"), os.path.exists("/dev/tty") or True)
