import os
import tempfile

with tempfile.TemporaryDirectory() as directory:
    path = os.path.join(directory, "a")
    with open(path, "w") as file:
        file.write("x")
    print(os.listdir(directory), os.path.getsize(path))
print(os.path.exists(directory))
with tempfile.NamedTemporaryFile("w+", suffix=".txt") as file:
    file.write("text")
    file.seek(0)
    print(file.read(), file.name.endswith(".txt"), os.stat(file.name).st_mode & 0o777)
with tempfile.TemporaryFile() as file:
    file.write(b"1")
    print(file.tell())
fd, path = tempfile.mkstemp()
os.close(fd)
os.unlink(path)
with tempfile.SpooledTemporaryFile(max_size=4) as file:
    file.write(b"longer than four")
    file.seek(0)
    print(file.read())
