import bz2
import gzip
import io
import lzma
import os
import shutil
import tarfile
import zipfile
import zlib

data = b"belljar " * 10_000
for module in (zlib, bz2, lzma, gzip):
    packed = module.compress(data)
    print(module.__name__, len(packed) < 1000, module.decompress(packed) == data)
with zipfile.ZipFile("corpus.zip", "w", zipfile.ZIP_DEFLATED) as archive:
    archive.writestr("a/b.txt", "inside")
print(zipfile.ZipFile("corpus.zip").read("a/b.txt"), zipfile.is_zipfile("corpus.zip"))
buffer = io.BytesIO()
with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
    archive.add("corpus.zip")
buffer.seek(0)
print(tarfile.open(fileobj=buffer).getnames())
os.makedirs("corpus-tree/sub")
shutil.unpack_archive("corpus.zip", "corpus-tree/sub")
print(sorted(os.listdir("corpus-tree/sub")))
shutil.rmtree("corpus-tree")
os.remove("corpus.zip")
