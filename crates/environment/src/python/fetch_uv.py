"""Fetches one wheel of uv from a package index and keeps its program.

    fetch_uv.py FILE SHA256 DESTINATION      with BELLJAR_INDEX in the environment

Standard library only, because a fresh Debian has Python without pip. The index is asked for its
HTML page (PEP 503), which every mirror serves. The digest is the one pinned in Belljar, never the
one that the page claims. Exit status: 3 the index cannot be reached, 4 it does not have the file,
5 the file is not the one that was pinned.
"""

import base64
import hashlib
import html.parser
import io
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
import zipfile

UNREACHABLE, NOT_LISTED, WRONG_DIGEST = 3, 4, 5
TIMEOUT_SECONDS = 30
# The wheels are 17 MB; a page or a file that does not end must not fill the memory.
MOST_BYTES = 200 * 1024 * 1024


class Links(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.targets = []

    def handle_starttag(self, tag, attributes):
        if tag == "a":
            self.targets.extend(value for name, value in attributes if name == "href" and value)


def without_credentials(url):
    """The address that may be shown and dialled, and the header that carries what was cut out."""
    parts = urllib.parse.urlsplit(url)
    if parts.username is None:
        return url, {}
    pair = urllib.parse.unquote(parts.username) + ":" + urllib.parse.unquote(parts.password or "")
    clean = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return clean, {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


def get(url, headers):
    request = urllib.request.Request(url, headers={"User-Agent": "belljar", **headers})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as reply:
            return reply.read(MOST_BYTES)
    except urllib.error.HTTPError as error:
        give_up(NOT_LISTED if error.code == 404 else UNREACHABLE, f"{url}: HTTP {error.code}")
    except (OSError, ValueError) as error:
        give_up(UNREACHABLE, f"{url}: {getattr(error, 'reason', error)}")


def give_up(status, message):
    print(message, file=sys.stderr)
    sys.exit(status)


def find(index, headers, name):
    page = index.rstrip("/") + "/uv/"
    links = Links()
    links.feed(get(page, headers).decode("utf-8", "replace"))
    for target in links.targets:
        address = urllib.parse.urldefrag(urllib.parse.urljoin(page, target)).url
        if urllib.parse.unquote(address.rpartition("/")[2]) == name:
            return address
    give_up(NOT_LISTED, f"{page} does not list {name}")


def keep_program(wheel, destination):
    partial = f"{destination}.{os.getpid()}"
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        (member,) = [n for n in archive.namelist() if n.endswith(".data/scripts/uv")]
        try:
            with open(partial, "xb") as file:
                file.write(archive.read(member))
                os.fchmod(file.fileno(), 0o755)
            os.replace(partial, destination)
        except BaseException:
            os.unlink(partial)
            raise


def main(name, digest, destination):
    index, credentials = without_credentials(os.environ["BELLJAR_INDEX"])
    address = find(index, credentials, name)
    same_host = urllib.parse.urlsplit(address).netloc == urllib.parse.urlsplit(index).netloc
    wheel = get(address, credentials if same_host else {})
    found = hashlib.sha256(wheel).hexdigest()
    if found != digest:
        give_up(WRONG_DIGEST, f"{address} has sha256 {found}")
    keep_program(wheel, destination)


main(*sys.argv[1:])
