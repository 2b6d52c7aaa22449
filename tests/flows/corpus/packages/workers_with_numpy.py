import multiprocessing as mp
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np


def total(n):
    return int(np.ones((n, n)).dot(np.ones((n, n))).sum())


if __name__ == "__main__":
    with ThreadPoolExecutor(4) as pool:
        print(list(pool.map(total, [10, 50])))
    with ProcessPoolExecutor(2, mp_context=mp.get_context("fork")) as pool:
        print(list(pool.map(total, [10, 50])))
    print(subprocess.run([sys.executable, "-c", "import numpy; print(numpy.arange(4).sum())"], capture_output=True, text=True))
