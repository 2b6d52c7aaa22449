import asyncio
import subprocess
import time
import urllib.request

import aiohttp
import boto3
import httpx
import requests
import urllib3
import websockets
from botocore.client import Config
from websockets.sync.client import connect

KEYS = {"aws_access_key_id": "my-id", "aws_secret_access_key": "my-own", "region_name": "eu-west-1"}
PATHS = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1})


def of_requests(url):
    return requests.get(url).text


def of_httpx(url):
    return httpx.get(url).text


def of_httpx_awaited(url):
    async def get():
        async with httpx.AsyncClient() as client:
            return (await client.get(url)).text

    return asyncio.run(get())


def of_urllib(url):
    return urllib.request.urlopen(url).read().decode()


def of_urllib3(url):
    return urllib3.PoolManager().request("GET", url).data.decode()


def of_aiohttp(url):
    async def get():
        async with aiohttp.ClientSession() as client, client.get(url) as response:
            return await response.text()

    return asyncio.run(get())


def of_websockets(url):
    with connect(url.replace("https", "wss") + "/socket") as socket:
        socket.send("here")
        return socket.recv()


def of_websockets_awaited(url):
    async def talk():
        async with websockets.connect(url.replace("https", "wss") + "/socket") as socket:
            await socket.send("here")
            return await socket.recv()

    return asyncio.run(talk())


def of_boto3(url):
    listed = boto3.client("s3", endpoint_url=url, config=PATHS, **KEYS).list_objects_v2(Bucket="bucket")
    return [entry["Key"] for entry in listed["Contents"]]


def of_git(url):
    clone = ["git", "clone", "--quiet", f"{url}/repository.git", "cloned"]
    ran = subprocess.run(clone, capture_output=True, text=True)
    if ran.returncode != 0:
        raise OSError(ran.stderr)
    return open("cloned/readme.txt").read()


ways = [
    of_requests, of_httpx, of_httpx_awaited, of_urllib, of_urllib3, of_aiohttp, of_websockets, of_websockets_awaited,
    of_boto3, of_git,
]
told = {}
for way in ways:
    told[way.__name__] = mine = {"site": way(SITE)}
    began = time.monotonic()
    try:
        mine["closed"] = way(CLOSED)
    except Exception as error:
        mine["denied"] = str(error)
        mine["seconds"] = time.monotonic() - began
told
