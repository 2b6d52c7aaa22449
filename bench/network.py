"""Measures requests of a Python client: the same code runs outside, directly to the host, and in a sandbox.

It uses the standard library only, and each function returns seconds. `small` sends requests as most code does, on a new
connection each time and through the proxy of the environment; `kept` uses one connection and plain sockets.
"""

import asyncio
import http.client
import ssl
import urllib.request
from time import perf_counter
from urllib.parse import urlsplit

PIECE_BYTES = 1 << 20


def small(url, count):
    took = []
    for _ in range(count):
        began = perf_counter()
        with urllib.request.urlopen(url) as answer:
            assert answer.read() == b"hello"
        took.append(perf_counter() - began)
    return took


def kept(url, count):
    place = urlsplit(url)
    connection = http.client.HTTPSConnection(place.hostname, place.port)
    took = []
    for _ in range(count + 1):
        began = perf_counter()
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"hello"
        took.append(perf_counter() - began)
    return took[1:]  # the first one has connected


def download(url, size):
    piece, left = bytearray(PIECE_BYTES), size
    began = perf_counter()
    with urllib.request.urlopen(f"{url}/text/{size}") as answer:
        while read := answer.readinto(piece):
            left -= read
    assert left == 0
    return [perf_counter() - began]


def at_once(url, count):
    """All are connected before any of them asks. How many seconds, and how many failed."""
    place = urlsplit(url)

    async def ask(trust, all_here):
        try:
            reader, writer = await asyncio.open_connection(place.hostname, place.port, ssl=trust)
        finally:
            all_here.append(None)
        while len(all_here) < count:
            await asyncio.sleep(0.01)
        writer.write(f"GET / HTTP/1.1\r\nHost: {place.netloc}\r\nConnection: close\r\n\r\n".encode())
        assert (await reader.read()).endswith(b"hello")
        writer.close()

    async def ask_all():
        trust, all_here = ssl.create_default_context(), []
        asked = [ask(trust, all_here) for _ in range(count)]
        return await asyncio.gather(*asked, return_exceptions=True)

    began = perf_counter()
    answers = asyncio.run(ask_all())
    return [perf_counter() - began, sum(answer is not None for answer in answers)]
