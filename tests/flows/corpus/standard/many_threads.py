import queue
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed

total, lock = 0, threading.Lock()


def add():
    global total
    for _ in range(1000):
        with lock:
            total += 1


threads = [threading.Thread(target=add) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(total)
with ThreadPoolExecutor(8) as pool:
    print(list(pool.map(lambda x: x * x, range(10))))
    print(sorted(f.result() for f in as_completed([pool.submit(pow, 3, n) for n in range(5)])))
local = threading.local()
local.x = 1
print(threading.current_thread() is threading.main_thread(), threading.current_thread().name, local.x)
barrier = threading.Barrier(4)
done = queue.Queue()
for _ in range(4):
    threading.Thread(target=lambda: (barrier.wait(), done.put(1)), daemon=True).start()
print(sum(done.get(timeout=10) for _ in range(4)))
