import multiprocessing as mp


def fill(shared, items):
    shared["a"] = 1
    items.append("x")


if __name__ == "__main__":
    ctx = mp.get_context("fork")
    with ctx.Manager() as manager:
        shared, items = manager.dict(), manager.list()
        process = ctx.Process(target=fill, args=(shared, items))
        process.start()
        process.join()
        print(dict(shared), list(items))
