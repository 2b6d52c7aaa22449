import abc
import array
import bisect
import collections
import copyreg
import enum
import heapq
import queue
import struct
import sched
import shelve
import os
import glob
import time
import graphlib
import ipaddress
import difflib
import pprint
import shlex
import urllib.parse
import mimetypes
import calendar
import colorsys

print(collections.Counter("mississippi").most_common(2), collections.OrderedDict(a=1), collections.deque([1, 2, 3], 2))
print(heapq.nsmallest(2, [3, 1, 2]), bisect.bisect([1, 3], 2), array.array("i", [1, 2]).tobytes())
print(struct.pack("<IhQ", 1, -2, 3), struct.calcsize("@ci"))


class Flag(enum.Flag):
    A = enum.auto()
    B = enum.auto()


print(Flag.A | Flag.B, list(Flag), enum.IntEnum("E", "X Y").Y + 1)
with shelve.open("corpus-shelf") as shelf:
    shelf["k"] = {"a": [1]}
    print(dict(shelf))
for path in glob.glob("corpus-shelf*"):
    os.remove(path)
scheduler = sched.scheduler(time.monotonic, time.sleep)
scheduler.enter(0.01, 1, print, ("scheduled",))
scheduler.run()
print(list(graphlib.TopologicalSorter({"b": {"a"}, "c": {"b"}}).static_order()), ipaddress.ip_network("10.0.0.0/30").num_addresses)
print(list(difflib.unified_diff(["a"], ["b"], lineterm="")), shlex.split("a 'b c'"), urllib.parse.quote("ü /"))
pprint.pprint({"k" * n: list(range(n)) for n in (1, 20, 25)}, width=40)
print(mimetypes.guess_type("a.png"), calendar.monthrange(2024, 2), colorsys.rgb_to_hsv(1, 0, 0))
