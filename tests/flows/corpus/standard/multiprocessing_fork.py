import multiprocessing as mp
import os


def square(x):
    return x * x


def put(queue, x):
    queue.put((x, os.getpid() != os.getppid()))


if __name__ == "__main__":
    ctx = mp.get_context("fork")
    with ctx.Pool(3) as pool:
        print(pool.map(square, range(8)), pool.apply(square, (9,)), list(pool.imap(square, [1, 2])))
    queue = ctx.Queue()
    process = ctx.Process(target=put, args=(queue, 5))
    process.start()
    print(queue.get(timeout=20))
    process.join()
    print(process.exitcode)
    a, b = ctx.Pipe()
    child = ctx.Process(target=lambda: b.send(["from", "child"]))
    child.start()
    print(a.recv())
    child.join()
    failing = ctx.Process(target=os._exit, args=(7,))
    failing.start()
    failing.join()
    print(failing.exitcode)
