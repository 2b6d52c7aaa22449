"""The official Python SDK 2.x drives Belljar, over standard input and output and over HTTP, in both eras."""

import asyncio
import json
import sys

from mcp import Client, StdioServerParameters

BINARY, URL, KEY = sys.argv[1:4]
OWN = {"create_session", "execute_python", "list_files", "read_file", "write_file"}


def targets():
    yield "stdio", StdioServerParameters(command=BINARY, args=["mcp", "--env", "bare"], env={"BELLJAR_DATA": sys.argv[4]})
    yield "bridge", StdioServerParameters(
        command=BINARY, args=["mcp"], env={"BELLJAR_URL": URL, "BELLJAR_API_KEY": KEY}
    )
    yield "http", URL + "/mcp"


def client(target, mode):
    if isinstance(target, str):
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {KEY}"})
        return Client(streamable_http_client(target, http_client=http), mode=mode)
    return Client(target, mode=mode)


async def drive(name, target, mode):
    told = []

    async def progress(done, total, message):
        told.append(message)

    async with client(target, mode) as c:
        names = {tool.name for tool in (await c.list_tools()).tools}
        assert OWN <= names, names
        ran = await c.call_tool("execute_python", {"code": "print('a')\nprint('b')\nresult = 6 * 7"}, progress_callback=progress)
        assert ran.structured_content == {"result": 42, "logs": ["a", "b"]}, ran
        assert json.loads(ran.content[0].text) == ran.structured_content
        assert not ran.is_error and "\n".join(told) == "a\nb", told
        failed = await c.call_tool("execute_python", {"code": "1/0"})
        assert failed.is_error and failed.structured_content["error"]["code"] == "ZeroDivisionError", failed
        session = (await c.call_tool("create_session", {})).structured_content["session"]
        await c.call_tool("execute_python", {"code": "x = 41", "session": session})
        kept = await c.call_tool("execute_python", {"code": "x + 1", "session": session})
        assert kept.structured_content["result"] == 42, kept
        made = await c.call_tool("execute_python", {"code": "open('out.csv', 'w').write('1,2')"})
        [link] = [block for block in made.content if block.type == "resource_link"]
        read = await c.read_resource(str(link.uri))
        assert read.contents[0].text == "1,2", read
        print(name, mode, c.protocol_version)


async def main():
    for name, target in targets():
        for mode in ("auto", "legacy", "2026-07-28"):
            async with asyncio.timeout(60):
                await drive(name, target, mode)


asyncio.run(main())
