import asyncio


async def worker(name, queue, out):
    while (item := await queue.get()) is not None:
        await asyncio.sleep(0)
        out.append((name, item))
        queue.task_done()


async def main():
    queue, out = asyncio.Queue(), []
    async with asyncio.TaskGroup() as group:
        group.create_task(worker("a", queue, out))
        for item in range(3):
            await queue.put(item)
        await queue.put(None)
    print(out)
    try:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(10)
    except TimeoutError:
        print("timeout")
    print(await asyncio.gather(*(asyncio.to_thread(pow, 2, n) for n in range(4))))
    process = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    print((await process.communicate(b"through a process"))[0])
    return 42


print(asyncio.run(main()))
print(asyncio.run(main()))
