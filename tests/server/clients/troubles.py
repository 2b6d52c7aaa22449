import os
import time

import httpx
import requests

WITH_KEY = {"X-Api-Key": os.environ["SHOP_KEY"]}
PORT = CLOSED.rsplit(":", 1)[1]


def with_requests(url):
    answer = requests.get(url, headers=WITH_KEY, timeout=2)
    return answer.status_code, answer.text


def with_httpx(url):
    answer = httpx.get(url, headers=WITH_KEY, timeout=2, follow_redirects=True)
    return answer.status_code, answer.text


tried = {
    "expired": EXPIRED,
    "lapsed": LAPSED,
    "silence of a site": f"{SITE}/silence",
    "silence of a shop": f"{SHOP}/silence",
    "short of a site": f"{SITE}/short",
    "short of a shop": f"{SHOP}/short",
    "long of a site": f"{SITE}/long",
    "long of a shop": f"{SHOP}/long",
    "redirect to other": f"{SHOP}/redirect?{OTHER}/landed",
    "redirect to closed": f"{SHOP}/redirect?{CLOSED}/",
    "redirect to loopback": f"{SHOP}/redirect?https://127.0.0.1:{PORT}/",
    "redirect to metadata": f"{SHOP}/redirect?http://169.254.169.254/latest/meta-data/",
    "redirect to plain": f"{SHOP}/redirect?{SHOP.replace('https', 'http')}/plain",
}
told = {}
for get in (with_requests, with_httpx):
    for name, url in tried.items():
        began = time.monotonic()
        try:
            status, text = get(url)
            outcome = {"status": status, "text": text}
        except Exception as error:
            outcome = {"error": f"{type(error).__name__}: {error}"}
        told[f"{name}, {get.__name__}"] = outcome | {"seconds": time.monotonic() - began}
told
