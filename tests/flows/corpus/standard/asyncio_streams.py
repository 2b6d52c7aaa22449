import asyncio


async def echo(reader, writer):
    writer.write((await reader.readline()).upper())
    await writer.drain()
    writer.close()


async def main():
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for host in ("127.0.0.1", "localhost"):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"hello\n")
        print(await reader.read())
        writer.close()
    server.close()


asyncio.run(main())
