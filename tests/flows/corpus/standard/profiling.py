import cProfile
import faulthandler
import gc
import io
import pstats
import sys
import timeit
import trace
import tracemalloc
import weakref

profile = cProfile.Profile()
profile.runcall(sum, range(10))
text = io.StringIO()
pstats.Stats(profile, stream=text).print_stats()
print("built-in method builtins.sum" in text.getvalue())
print(timeit.timeit("1 + 1", number=1000) >= 0)
tracemalloc.start()
kept = [bytes(1000) for _ in range(100)]
print(tracemalloc.take_snapshot().statistics("lineno")[0].size > 50_000)
tracemalloc.stop()
faulthandler.enable()
print(faulthandler.is_enabled())
faulthandler.disable()


class Node:
    pass


node = Node()
node.itself = node
ref = weakref.ref(node)
weakref.finalize(node, print, "finalized")
del node
print(gc.collect() > 0, ref())
print(trace.Trace(count=1, trace=0).runfunc(lambda: 7))
events = []
sys.settrace(lambda frame, event, arg: events.append(event))
(lambda: None)()
sys.settrace(None)
print(events[:1])
