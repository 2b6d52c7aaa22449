import mmap
import os

with open("corpus.bin", "w+b") as file:
    file.truncate(8192)
    with mmap.mmap(file.fileno(), 0) as view:
        view[:5] = b"hello"
        view.flush()
        print(view.find(b"llo"), len(view))
    file.seek(0)
    print(file.read(5))
os.remove("corpus.bin")
anonymous = mmap.mmap(-1, 1 << 20)
if os.fork() == 0:
    anonymous[:1] = b"c"
    os._exit(0)
os.wait()
print(anonymous[:1])
print(len(mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)))
fd = os.memfd_create("x")
os.write(fd, b"memfd")
print(os.pread(fd, 10, 0))
