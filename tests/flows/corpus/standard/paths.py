import fnmatch
import glob
import os
import pathlib
import shutil
import stat

base = pathlib.Path("corpus-paths")
(base / "a" / "b").mkdir(parents=True)
(base / "a" / "one.txt").write_text("1")
(base / "a" / "b" / "two.txt").write_bytes(b"22")
(base / "link").symlink_to("a/one.txt")
os.link(base / "a" / "one.txt", base / "hard")
print(sorted(str(p) for p in base.rglob("*.txt")), (base / "link").read_text(), os.stat(base / "hard").st_nlink)
shutil.copytree(base, "corpus-copy", symlinks=True)
print(sorted(glob.glob("corpus-copy/**", recursive=True)))
print([(root, sorted(dirs), sorted(files)) for root, dirs, files in os.walk("corpus-copy")])
os.chmod(base / "hard", 0o600)
print(stat.filemode(os.stat(base / "hard").st_mode), fnmatch.filter(["a.py", "b.c"], "*.py"))
os.rename("corpus-copy", "corpus-moved")
os.utime("corpus-moved", (0, 0))
print(os.path.getmtime("corpus-moved"), shutil.disk_usage(".").total > 0)
os.mkfifo("corpus-fifo")
print(stat.S_ISFIFO(os.stat("corpus-fifo").st_mode))
os.remove("corpus-fifo")
with os.scandir(base) as entries:
    print(sorted((e.name, e.is_dir(), e.is_symlink()) for e in entries))
shutil.move("corpus-moved", base / "in")
shutil.rmtree(base)
print(base.exists(), pathlib.PurePath("/a/../b").parts, pathlib.Path("~").expanduser().is_absolute())
