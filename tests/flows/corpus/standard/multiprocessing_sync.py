import multiprocessing as mp


def add(value, lock, event):
    event.wait()
    for _ in range(100):
        with lock:
            value.value += 1


if __name__ == "__main__":
    ctx = mp.get_context("fork")
    value, lock, event = ctx.Value("i", 0), ctx.Lock(), ctx.Event()
    array = ctx.Array("d", [1.0, 2.0])
    processes = [ctx.Process(target=add, args=(value, lock, event)) for _ in range(4)]
    for process in processes:
        process.start()
    event.set()
    for process in processes:
        process.join()
    print(value.value, array[:])
    semaphore = ctx.BoundedSemaphore(2)
    print(semaphore.acquire(), semaphore.acquire(), semaphore.acquire(block=False))
    barrier = ctx.Barrier(2)
    other = ctx.Process(target=barrier.wait)
    other.start()
    barrier.wait(timeout=20)
    other.join()
    print(other.exitcode)
