"""Code reaches other hosts through the proxy only, with any client, and gets the reason of a refusal at once."""

from __future__ import annotations

import socket
import socketserver
import threading
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.harness import RunnerTest

KNOWN = "known.example:4321"
DENIED = (
    "is not allowed by any integration of this session; list one that allows this host in `integrations`, or in "
    "`external_access_integrations` of the agent"
)

_ERRORS_OF_BOTO3 = """
class Error(Exception):
    def __init__(self, **kwargs):
        super().__init__("no connection")
        self.kwargs = kwargs

class EndpointConnectionError(Error):
    pass

class ProxyConnectionError(Error):
    pass
"""


class _Greeter(socketserver.BaseRequestHandler):
    """Speaks first, then says everything back."""

    def handle(self) -> None:
        self.request.sendall(b"hello ")
        while data := self.request.recv(1024):
            self.request.sendall(data)


class _Proxy(socketserver.StreamRequestHandler):
    """Knows one host, and how to fail in each way."""

    def handle(self) -> None:
        place = self.rfile.readline().decode().split(" ")[1:2]
        if not place:
            return  # somebody wanted to know whether anyone is here
        while self.rfile.readline().strip():
            pass
        self.server.asked.append(place[0])
        answer = {
            KNOWN: "200 OK",
            "lost.example:80": "502 lost.example:80 cannot be resolved",
            "shut.example:80": "502 cannot connect to shut.example:80: connection refused",
            "slow.example:80": "504 slow.example:80 did not respond in time",
        }.get(place[0], f"403 network.denied: {place[0]} {DENIED}")
        if place[0] == "hung.example:80":
            self.server.over.wait()
        self.request.sendall(f"HTTP/1.1 {answer}\r\nx: y\r\n\r\n".encode())
        if answer.startswith("200"):
            self._relay()

    def _relay(self) -> None:
        with socket.create_connection(self.server.behind) as there:
            back = threading.Thread(target=_copy, args=(there, self.request))
            back.start()
            _copy(self.request, there)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):  # either may go away whenever it likes
        while data := source.recv(1024):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads, block_on_close = True, False

    def handle_error(self, request: object, client_address: object) -> None:
        """A client may go away whenever it likes."""


class NetworkTest(RunnerTest):
    def setUp(self) -> None:
        super().setUp()
        greeter, self.proxy = self.serve(_Greeter), self.serve(_Proxy)
        self.proxy.behind, self.proxy.asked = greeter.server_address, []
        self.proxy.over = threading.Event()
        self.addCleanup(self.proxy.over.set)
        self.use_proxy(self.proxy.server_address[1])

    def serve(self, handler: type[socketserver.BaseRequestHandler]) -> _Server:
        server = _Server(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server

    def use_proxy(self, port: int) -> None:
        self.value_of(f"""
            import asyncio, errno, pickle, select, socket, ssl, sys, threading, time
            from belljar_runner import network
            network.proxy_address = ("127.0.0.1", {port})
            network.install()
        """.replace("\n            ", "\n") + "\n0")

    def failure_of(self, code: str) -> tuple[str, str, str | None]:
        error = self.run_cell(code).error
        return error["type"], error["message"], error.get("denied")


class Allowed(NetworkTest):
    def assert_greets(self, code: str) -> None:
        self.assertEqual(self.value_of(code), "hello there", code)
        self.assertEqual(self.proxy.asked, [KNOWN])

    def test_a_name_is_reached_though_nobody_resolves_it(self):
        self.assert_greets("""
            with socket.create_connection(("known.example", 4321)) as known:
                known.sendall(b"there")
                known.shutdown(socket.SHUT_WR)
                heard = b"".join(iter(lambda: known.recv(100), b""))
            heard.decode()
        """)

    def test_a_name_can_be_resolved_first_in_every_way(self):
        self.assertEqual(self.value_of("""
            hosts = {socket.gethostbyname("known.example"), socket.gethostbyname_ex("known.example")[2][0]}
            hosts |= {found[4][0] for found in socket.getaddrinfo("known.example", 4321, 0, socket.SOCK_STREAM)}
            six = socket.getaddrinfo("known.example", "http", socket.AF_INET6, socket.SOCK_STREAM)
            [sorted(hosts), [list(found[4][:2]) for found in six]]
        """), [["198.18.0.1"], [["::ffff:198.18.0.1", 80]]])
        self.assert_greets("""
            known = socket.socket(socket.AF_INET6)
            known.connect(("::ffff:198.18.0.1", 4321))
            known.sendall(b"there")
            b"".join(known.recv(1) for _ in range(11)).decode()
        """)

    def test_a_socket_keeps_its_timeout(self):
        for timeout in (None, 0, 7.5):
            code = f"""
                known = socket.socket()
                known.settimeout({timeout})
                [known.connect_ex(("known.example", 4321)), known.gettimeout()]
            """
            self.assertEqual(self.value_of(code), [0, timeout])

    def test_asyncio_waits_for_the_answer_without_blocking_the_loop(self):
        self.assert_greets("""
            reader, writer = await asyncio.open_connection("known.example", 4321)
            writer.write(b"there")
            (await reader.readexactly(11)).decode()
        """)
        self.assertGreater(self.value_of("""
            async def tick():
                count = 0
                while not connecting.done():
                    count += 1
                    await asyncio.sleep(0.01)
                return count
            connecting = asyncio.ensure_future(asyncio.wait_for(asyncio.open_connection("hung.example", 80), 0.5))
            ticks = await tick()
            assert isinstance(connecting.exception(), TimeoutError), connecting.exception()
            ticks
        """), 10)

    def test_who_is_here_is_met_directly(self):
        self.assertEqual(self.value_of("""
            with socket.create_server(("127.0.0.1", 0)) as server:
                for host in ("127.0.0.1", "localhost", "127.1", "0.0.0.0", "::ffff:127.0.0.1"):
                    socket.create_connection((host, server.getsockname()[1])).close()
            here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            here.bind(("127.0.0.1", 0))
            here.sendto(b"to me", here.getsockname())
            here.sendmsg([b"to me"], [], 0, here.getsockname())
            left, right = socket.socketpair()
            left.sendmsg([b"x"])
            [here.recv(9).decode(), here.recv(9).decode()]
        """), ["to me", "to me"])
        self.assertEqual(self.proxy.asked, [])

    def test_plain_http_is_asked_for_as_everything_is(self):
        self.assertEqual(self.value_of("""
            import os, urllib.request
            own, other = f"http://127.0.0.1:{network.proxy_address[1]}", "http://other.example:8080"
            os.environ.update(HTTP_PROXY=own, https_proxy=own, ALL_PROXY=own, NO_PROXY="localhost")
            ours = urllib.request.getproxies()
            os.environ["http_proxy"] = other
            [sorted(ours), urllib.request.getproxies_environment()["http"]]
        """), [["https", "no"], "http://other.example:8080"])
        self.run_cell("os.environ['http_proxy'] = own")
        kind, message, denied = self.failure_of("urllib.request.urlopen('http://other.example/')")
        self.assertEqual((kind, denied), ("urllib.error.URLError", "network"))
        self.assertIn(f"other.example:80 {DENIED}", message)
        self.assertEqual(self.proxy.asked, ["other.example:80"])

    def test_an_error_that_keeps_its_reason_to_itself_tells_it(self):
        place = Path(self.enterContext(TemporaryDirectory()))
        (place / "botocore").mkdir()
        (place / "botocore" / "__init__.py").touch()
        (place / "botocore" / "exceptions.py").write_text(_ERRORS_OF_BOTO3)
        self.run_cell(f"sys.path.insert(0, {str(place)!r})\nfrom botocore import exceptions")
        for kind in ("EndpointConnectionError", "ProxyConnectionError"):
            _, message, denied = self.failure_of(f"""
                try:
                    socket.create_connection(("other.example", 80))
                except OSError as error:
                    reason = error
                raise exceptions.{kind}(error=reason)
            """)
            self.assertIn(f"no connection: [Errno 13] network access is not allowed: other.example:80 {DENIED}", message)
            self.assertEqual(denied, "network")
            self.assertEqual(self.value_of(f"str(exceptions.{kind}(endpoint_url='x'))"), "no connection")

    def test_each_failure_is_the_error_that_python_has_for_it(self):
        table = {
            "other.example": (
                "PermissionError", f"[Errno 13] network access is not allowed: other.example:80 {DENIED}",
            ),
            "lost.example": ("socket.gaierror", "[Errno -2] lost.example:80 cannot be resolved"),
            "shut.example": (
                "ConnectionRefusedError",
                "[Errno 111] cannot connect to shut.example:80: connection refused",
            ),
            "slow.example": ("TimeoutError", "[Errno 110] slow.example:80 did not respond in time"),
        }
        for name, expected in table.items():
            for code in ("socket.create_connection((%r, 80))", "await asyncio.open_connection(%r, 80)"):
                self.assertEqual(self.failure_of(code % name)[:2], expected)
        self.assertEqual(self.value_of("socket.socket().connect_ex(('other.example', 80))"), 13)
        waited = "began = time.monotonic()\nsocket.create_connection(('hung.example', 80), timeout=0.3)"
        self.assertEqual(self.failure_of(waited)[0], "TimeoutError")
        self.assertLess(self.value_of("time.monotonic() - began"), 5)

    def test_addresses_are_asked_for_as_they_are(self):
        self.failure_of("socket.create_connection(('93.184.216.34', 443))")
        self.failure_of("socket.create_connection(('2606:2800::1', 443))")
        self.failure_of("socket.socket().connect(('BÜCHER.example', 443))")
        asked = ["93.184.216.34:443", "[2606:2800::1]:443", "xn--bcher-kva.example:443"]
        self.assertEqual(self.proxy.asked, asked)

    def test_nothing_but_tcp_leaves(self):
        self.run_cell("udp, there = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), ('8.8.8.8', 53)")
        for send in ("sendto(b'x', there)", "connect(there)", "sendmsg([b'x'], [], 0, there)"):
            reply = self.run_cell(f"udp.{send}")
            self.assertEqual((reply.error["type"], reply.error.get("denied")), ("PermissionError", "network"))
            sentence = "UDP is not supported: datagram to 8.8.8.8:53; use TCP"
            self.assertIn(sentence, reply.error["message"])
            self.assertEqual(reply.refused, ["8.8.8.8:53"], "the proxy does not see it")

    def test_python_still_finds_fault_itself(self):
        table = {
            "socket.socket().connect(('93.184.216.34', 70000))": "OverflowError",
            "socket.socket().connect('known.example')": "TypeError",
            "socket.socket().connect((1, 2))": "TypeError",
            "socket.getaddrinfo('known.example', 'no-such-service')": "socket.gaierror",
            "socket.getaddrinfo('known.example', 80, flags=socket.AI_NUMERICHOST)": "socket.gaierror",
        }
        for code, kind in table.items():
            self.assertEqual(self.failure_of(code)[0], kind, code)

    def test_a_process_that_knows_many_names_forgets_the_oldest(self):
        self.assertEqual(self.value_of("""
            network._NAMES_MAX = 2
            [network._placeholder_address(name) for name in ("a", "b", "a", "c", "a")]
        """), ["198.18.0.1", "198.18.0.2", "198.18.0.1", "198.18.0.1", "198.18.0.2"])


class WithoutOutlet(NetworkTest):
    def setUp(self) -> None:
        super().setUp()
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            port = nobody.getsockname()[1]
        self.use_proxy(port)

    def test_every_attempt_names_the_place_and_what_is_missing_at_once(self):
        attempts = {
            "socket.create_connection(('far.example', 443))": ("socket.gaierror", "far.example:443"),
            "socket.getaddrinfo(b'far.example', 'https')": ("socket.gaierror", "far.example:https"),
            "socket.gethostbyname('far.example')": ("socket.gaierror", "far.example"),
            "socket.socket().connect(('93.184.216.34', 443))": ("PermissionError", "93.184.216.34:443"),
            "await asyncio.open_connection('far.example', 443)": ("socket.gaierror", "far.example:443"),
            "await asyncio.open_connection('93.184.216.34', 443)": ("PermissionError", "93.184.216.34:443"),
            "import urllib.request; urllib.request.urlopen('https://far.example')": (
                "urllib.error.URLError", "far.example:443",
            ),
            "ssl.create_default_context().wrap_socket(socket.socket(), server_hostname='x').connect(('9.9.9.9', 1))": (
                "PermissionError", "9.9.9.9:1",
            ),
        }
        for code, (expected, place) in attempts.items():
            self.value_of("began = time.monotonic()\n0")
            reply = self.run_cell(code)
            kind, message, denied = (reply.error.get(key) for key in ("type", "message", "denied"))
            self.assertEqual(reply.refused, [place], "and the host gets a report")
            self.assertLess(self.value_of("time.monotonic() - began"), 1, code)
            self.assertEqual((kind, denied), (expected, "network"), code)
            self.assertIn(f"network access is not allowed: {place} {DENIED}", message)

    def test_an_error_that_merely_came_later_is_another_one(self):
        fails = "try:\n    socket.gethostbyname('far.example')\nexcept OSError as error:\n    {}"
        self.assertEqual(self.failure_of(fails.format("1 / 0"))[2], None)
        self.assertEqual(self.failure_of(fails.format("raise ValueError('no') from error"))[2], "network")
        self.assertEqual(self.failure_of(fails.format("raise ValueError(error) from None"))[2], "network")

    def test_the_error_can_be_sent_to_another_process(self):
        self.assertEqual(self.value_of("""
            try:
                socket.gethostbyname("far.example")
            except OSError as error:
                copy = pickle.loads(pickle.dumps(error))
            [type(copy) is socket.gaierror, "not allowed" in str(copy)]
        """), [True, True])
