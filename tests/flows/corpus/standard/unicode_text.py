import locale
import re
import string
import sys
import textwrap
import unicodedata

print("grüße ☃ 𝒳 日本語 \u202e", len("👩‍👩‍👧"), "ß".upper(), "İ".lower())
print(unicodedata.normalize("NFD", "é").encode(), unicodedata.name("☃"))
print(sys.getdefaultencoding(), sys.getfilesystemencoding(), sys.stdout.encoding, sys.stdout.errors == "strict" or 1)
print(locale.getpreferredencoding(False), locale.setlocale(locale.LC_ALL, "C.UTF-8"), f"{1234567.891:,.2f}")
print(re.sub(r"(?P<a>\w+) (?P<b>\w+)", r"\g<b> \g<a>", "hello world"), re.findall(r"\d+", "1 22 333"))
print(textwrap.fill("the quick brown fox " * 3, 20))
print(string.Template("$a and ${b}").substitute(a=1, b=2), "%(x)05.1f" % {"x": 3.14159}, f"{'c':*^9}")
with open("ünï ☃.txt", "w") as file:
    file.write("ünï\r\n")
print(open("ünï ☃.txt", newline="").read().encode())
import os

os.remove("ünï ☃.txt")
print(bytes(range(256)).decode("latin-1").encode("utf-8")[-4:], "\ud800".encode("utf-8", "surrogatepass"))
