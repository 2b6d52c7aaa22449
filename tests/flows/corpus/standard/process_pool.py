import multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor


def cube(x):
    return x**3


def fail():
    raise ValueError("from the worker")


if __name__ == "__main__":
    with ProcessPoolExecutor(2, mp_context=mp.get_context("fork")) as pool:
        print(list(pool.map(cube, range(5))))
        print(repr(pool.submit(fail).exception()))
