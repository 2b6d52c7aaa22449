"""The official Python SDK 1.x, as it is in the wild, drives Belljar over standard input and output and over HTTP."""

import asyncio
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

BINARY, URL, KEY, DATA = sys.argv[1:5]


async def drive(read, write):
    async with ClientSession(read, write) as session:
        greeting = await session.initialize()
        tools = await session.list_tools()
        assert "execute_python" in {tool.name for tool in tools.tools}
        ran = await session.call_tool("execute_python", {"code": "print(6 * 7)"})
        assert ran.structuredContent == {"result": "42", "logs": []}, ran
        assert not ran.isError
        bad = await session.call_tool("execute_python", {"code": ""})
        assert bad.isError and "code" in bad.content[0].text, bad
        return greeting.protocolVersion


async def main():
    stdio = StdioServerParameters(command=BINARY, args=["mcp", "--env", "bare"], env={"BELLJAR_DATA": DATA})
    async with asyncio.timeout(60), stdio_client(stdio) as (read, write):
        print("stdio", await drive(read, write))
    headers = {"Authorization": f"Bearer {KEY}"}
    async with asyncio.timeout(60), streamablehttp_client(URL + "/mcp", headers=headers) as (read, write, _):
        print("http", await drive(read, write))


asyncio.run(main())
