import os
import urllib.request

import httpx
import requests

key = os.environ["SHOP_KEY"]
heard = [
    requests.get(SHOP, headers={"X-Api-Key": key}).json()["x-api-key"],
    httpx.post(SHOP, headers={"X-Api-Key": key}, json={"a": 1}).json()["x-api-key"],
    # Code that knows nothing of a key.
    urllib.request.urlopen(SHOP).read().decode(),
]
heard
