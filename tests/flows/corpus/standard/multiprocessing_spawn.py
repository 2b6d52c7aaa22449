import multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor


def square(x):
    return x * x


if __name__ == "__main__":
    for method in ("spawn", "forkserver"):
        ctx = mp.get_context(method)
        with ProcessPoolExecutor(2, mp_context=ctx) as pool:
            print(method, list(pool.map(square, range(4))))
