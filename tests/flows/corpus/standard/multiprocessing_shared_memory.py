import multiprocessing as mp
from multiprocessing import shared_memory


def write(name):
    block = shared_memory.SharedMemory(name)
    block.buf[:5] = b"hello"
    block.close()


if __name__ == "__main__":
    block = shared_memory.SharedMemory(create=True, size=1024)
    process = mp.get_context("fork").Process(target=write, args=(block.name,))
    process.start()
    process.join()
    print(bytes(block.buf[:5]), process.exitcode)
    block.close()
    block.unlink()
    items = shared_memory.ShareableList([1, "two", 3.0])
    print(list(items))
    items.shm.close()
    items.shm.unlink()
