"""The network as Python code sees it: one proxy, and a clear error where it does not help.

A sandbox has no interface but its loopback, and no names but its own. If the host serves the proxy, a connection to any
other host is requested there (HTTP CONNECT), and a name gets a placeholder address; clients that read `HTTPS_PROXY` use
the proxy by themselves. Without a proxy, every attempt fails at once and says what is missing. This is no isolation
layer: that is the empty network namespace, in which code that bypasses this module reaches no host.
"""

from __future__ import annotations

import errno
import re
import socket
from asyncio.selector_events import BaseSelectorEventLoop
from collections.abc import Callable
from itertools import count
from time import monotonic
from types import ModuleType
from typing import Any

from .after_import import after_import

# The host serves the proxy here, or nothing listens.
outlet = ("127.0.0.1", 3128)

# Called for attempts that no proxy sees.
told: Callable[[str], None] | None = None

# The proxy times out sooner. For non-blocking sockets, which must wait here nevertheless.
_PATIENCE_SECONDS = 60.0
# The proxy is on the same machine, and accepts or refuses at once.
_PROBE_SECONDS = 1.0
_ANSWER_BYTES_MAX = 16 * 1024
# 198.18.0.0/15 is reserved for benchmarks (RFC 2544): no host has these addresses.
_FIRST_STAND_IN = int.from_bytes(socket.inet_aton("198.18.0.1"), "big")
# A process with more names than this forgets the oldest.
_NAMES_MAX = 65_536

_NOT_ALLOWED = "network access is not allowed: "
_NOT_OPENED = (
    "{} is not allowed by any integration of this session; add one that allows it to integrations, or to "
    "external_access_integrations in the specification of an agent"
)
_NO_DATAGRAMS = "only TCP connections leave a sandbox, no datagrams (UDP) to {}"
# The proxy's wording.
_DENIED, _UNRESOLVED = "network.denied: ", "cannot be resolved"

# Methods of the C class: a socket may be a TLS socket, whose own methods do something else.
_Plain = socket.SocketType
_family, _kind = _Plain.family.__get__, _Plain.type.__get__
_recv, _sendall, _shutdown = _Plain.recv, _Plain.sendall, _Plain.shutdown
_gettimeout, _settimeout = _Plain.gettimeout, _Plain.settimeout
_connect, _connect_ex, _sendto, _sendmsg = _Plain.connect, _Plain.connect_ex, _Plain.sendto, _Plain.sendmsg
_getaddrinfo, _gethostbyname = socket.getaddrinfo, socket.gethostbyname
_gethostbyname_ex, _gethostname = socket.gethostbyname_ex, socket.gethostname
_sock_connect = BaseSelectorEventLoop.sock_connect
_INTERNET = (socket.AF_INET, socket.AF_INET6)
_is_name = re.compile(r"[A-Za-z0-9_.-]+").fullmatch

_names: dict[int, str] = {}
_numbers: dict[str, int] = {}
_next_number = count()


class Denied(PermissionError):
    def __init__(self, sentence: str) -> None:
        super().__init__(errno.EACCES, _NOT_ALLOWED + sentence)

    def __reduce__(self) -> tuple[Any, ...]:
        return PermissionError, self.args


class NameDenied(socket.gaierror):
    """The error type that clients expect for a name; they show its text."""

    def __init__(self, sentence: str) -> None:
        super().__init__(socket.EAI_NONAME, _NOT_ALLOWED + sentence)

    def __reduce__(self) -> tuple[Any, ...]:
        return socket.gaierror, self.args


for _error in (Denied, NameDenied):
    # These errors look like Python's own, except to the code that reports them.
    _error.__name__ = _error.__qualname__ = _error.__base__.__name__
    _error.__module__ = _error.__base__.__module__


def install() -> None:
    """Active from here on in this process and its forks."""
    socket.getaddrinfo, socket.gethostbyname = getaddrinfo, gethostbyname
    socket.gethostbyname_ex = gethostbyname_ex
    socket.socket.connect, socket.socket.connect_ex = connect, connect_ex
    socket.socket.sendto, socket.socket.sendmsg = sendto, sendmsg
    BaseSelectorEventLoop.sock_connect = sock_connect
    after_import("urllib.request", _without_proxy_of_plain_http)
    after_import("aiohttp.resolver", _without_own_resolver)
    after_import("websockets.exceptions", _with_status_and_reason)
    after_import("botocore.exceptions", _with_reason)


def is_denied(error: BaseException | None) -> bool:
    """Whether code failed because of the network, judged by the text: clients wrap it in their own errors."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        error = waiting.pop()
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        if _speaks_of_denial(error):
            return True
        waiting.append(error.__cause__)
        if isinstance(error, BaseExceptionGroup):
            waiting += error.exceptions
    return False


def _speaks_of_denial(error: BaseException) -> bool:
    try:
        text = str(error)
    except Exception:
        return False
    return _NOT_ALLOWED in text or _DENIED in text


def getaddrinfo(
    host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
) -> list[tuple[Any, ...]]:
    name = _far_name(host)
    if name is None or flags & socket.AI_NUMERICHOST:
        return _getaddrinfo(host, port, family, type, proto, flags)
    _check_outlet(name if port is None else f"{name}:{_text(port)}")
    stand_in = _stand_in(name)
    if family == socket.AF_INET6:
        stand_in = f"::ffff:{stand_in}"
    return _getaddrinfo(stand_in, port, family, type, proto, flags & ~socket.AI_ADDRCONFIG)


def gethostbyname(hostname: str, /) -> str:
    name = _far_name(hostname)
    if name is None:
        return _gethostbyname(hostname)
    _check_outlet(name)
    return _stand_in(name)


def gethostbyname_ex(hostname: str, /) -> tuple[str, list[str], list[str]]:
    if _far_name(hostname) is None:
        return _gethostbyname_ex(hostname)
    return hostname, [], [gethostbyname(hostname)]


def connect(self: socket.socket, address: Any, /) -> None:
    place = _far_place(self, address)
    if place is None:
        return _connect(self, address)
    _tunnel(self, place)


def connect_ex(self: socket.socket, address: Any, /) -> int:
    try:
        place = _far_place(self, address)
        if place is None:
            return _connect_ex(self, address)
        _tunnel(self, place)
    except socket.gaierror:
        raise
    except OSError as error:
        return error.errno or errno.EAGAIN
    return 0


def sendto(self: socket.socket, *args: Any) -> int:
    if len(args) > 1:
        _far_place(self, args[-1])
    return _sendto(self, *args)


def sendmsg(self: socket.socket, *args: Any) -> int:
    if len(args) > 3:
        _far_place(self, args[3])
    return _sendmsg(self, *args)


async def sock_connect(self: BaseSelectorEventLoop, sock: socket.socket, address: Any) -> None:
    """Like `connect`, without blocking the other tasks of the loop."""
    place = _far_place(sock, address)
    if place is None:
        return await _sock_connect(self, sock, address)
    try:
        await _sock_connect(self, sock, _outlet_for(sock))
    except ConnectionRefusedError:
        raise _refusal(Denied, place) from None
    answer = bytearray()
    try:
        await self.sock_sendall(sock, _question(place))
        while _takes(answer, await self.sock_recv(sock, 1)):
            pass
        _judge(answer, place)
    except BaseException:
        _hang_up(sock)
        raise


def _tunnel(sock: socket.socket, place: str) -> None:
    timeout = _gettimeout(sock)
    patience = _PATIENCE_SECONDS if timeout == 0 else timeout
    until = None if patience is None else monotonic() + patience
    _settimeout(sock, patience)
    try:
        try:
            _connect(sock, _outlet_for(sock))
        except ConnectionRefusedError:
            raise _refusal(Denied, place) from None
        try:
            _ask(sock, place, until)
        except BaseException:
            _hang_up(sock)
            raise
    finally:
        _settimeout(sock, timeout)


def _ask(sock: socket.socket, place: str, until: float | None) -> None:
    _sendall(sock, _question(place))
    answer = bytearray()
    # Byte by byte: what follows the response belongs to the code that requested the connection.
    while _takes(answer, _recv(sock, 1)):
        if until is not None:
            _settimeout(sock, max(until - monotonic(), 0.001))
    _judge(answer, place)


def _question(place: str) -> bytes:
    return f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode("ascii")


def _takes(answer: bytearray, part: bytes) -> bool:
    """Whether more of the response is to come."""
    answer += part
    return part != b"" and len(answer) < _ANSWER_BYTES_MAX and not answer.endswith(b"\r\n\r\n")


def _judge(answer: bytearray, place: str) -> None:
    status, _, reason = answer.partition(b"\r\n")[0].decode("latin-1").partition(" ")[2].partition(" ")
    if status.startswith("2"):
        return
    if status == "403":
        raise Denied(reason.removeprefix(_DENIED) or _NOT_OPENED.format(place))
    if reason.endswith(_UNRESOLVED):
        raise socket.gaierror(socket.EAI_NONAME, reason)
    if status == "504":
        raise TimeoutError(errno.ETIMEDOUT, reason)
    raise ConnectionRefusedError(errno.ECONNREFUSED, reason or f"{place}: the outlet of this sandbox has hung up")


def _hang_up(sock: socket.socket) -> None:
    try:
        _shutdown(sock, socket.SHUT_RDWR)
    except OSError:
        pass  # it is over already


def _outlet_for(sock: socket.socket) -> tuple[str, int]:
    host, port = outlet
    return (f"::ffff:{host}" if _family(sock) == socket.AF_INET6 else host), port


def _check_outlet(place: str) -> None:
    """Checked each time: the host opens and closes the proxy at any time."""
    probe = _Plain(socket.AF_INET, socket.SOCK_STREAM)
    try:
        _settimeout(probe, _PROBE_SECONDS)
        if _connect_ex(probe, outlet) != 0:
            raise _refusal(NameDenied, place)
    finally:
        probe.close()


def _refusal(error: type[OSError], place: str, why: str = _NOT_OPENED) -> OSError:
    """Reports the refusal to the host, which logs it, and returns the error for the code."""
    if told is not None:
        told(place)
    return error(why.format(place))


def _far_place(sock: socket.socket, address: Any) -> str | None:
    """Host and port outside of the sandbox, or None if Python should proceed as usual, even into an error."""
    if _family(sock) not in _INTERNET or not isinstance(address, tuple) or len(address) < 2:
        return None
    host, port = _text(address[0]), address[1]
    if not isinstance(host, str) or not isinstance(port, int) or not 0 <= port < 65_536:
        return None
    packed = _packed(host)
    far = _far_name(host) if packed is None else _far_address(packed)
    if far is None:
        return None
    place = f"[{far}]:{port}" if ":" in far else f"{far}:{port}"
    if _kind(sock) != socket.SOCK_STREAM:
        raise _refusal(Denied, place, _NO_DATAGRAMS)
    return place


def _far_name(host: Any) -> str | None:
    """The ASCII name of a host outside; None for addresses and invalid names."""
    host = _text(host)
    if not isinstance(host, str) or _packed(host) is not None:
        return None
    try:
        name = host.encode("idna").decode("ascii")
    except UnicodeError:
        return None
    if not _is_name(name) or name.rstrip(".").lower() in ("", "localhost", _gethostname().lower()):
        return None
    return name


def _far_address(packed: bytes) -> str | None:
    """What an address stands for, or is; None for the sandbox's own."""
    if len(packed) == 16:
        if packed[:12] != b"\0" * 10 + b"\xff\xff":
            here = packed[:15] == b"\0" * 15 and packed[15] < 2
            return None if here else socket.inet_ntop(socket.AF_INET6, packed)
        packed = packed[12:]
    if packed[0] == 127 or packed == b"\0" * 4:
        return None
    return _names.get(int.from_bytes(packed, "big") - _FIRST_STAND_IN) or socket.inet_ntoa(packed)


def _packed(host: str) -> bytes | None:
    try:
        if ":" in host:
            return socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
        return socket.inet_aton(host)
    except (OSError, ValueError):
        return None


def _text(host: Any) -> Any:
    return host.decode("latin-1") if isinstance(host, (bytes, bytearray)) else host


def _stand_in(name: str) -> str:
    """The placeholder address of a name in this process. No lock: one could be held during a fork."""
    number = _numbers.get(name)
    if number is None or _names.get(number) != name:
        number = next(_next_number) % _NAMES_MAX
        _numbers.pop(_names.get(number, ""), None)
        _names[number], _numbers[name] = name, number
    return socket.inet_ntoa((_FIRST_STAND_IN + number).to_bytes(4, "big"))


def _without_proxy_of_plain_http(request: ModuleType) -> None:
    """Clients read the proxy variables through this function. For plain http they would take the proxy's error for the
    host's response; a connection that they open themselves is requested first, and fails with an exception.
    """
    of_variables = request.getproxies_environment

    def getproxies_environment() -> dict[str, str]:
        own = "http://{}:{}".format(*outlet)
        found = of_variables()
        return {kind: proxy for kind, proxy in found.items() if proxy != own or kind not in ("http", "all")}

    request.getproxies = request.getproxies_environment = getproxies_environment


def _without_own_resolver(resolver: ModuleType) -> None:
    """With aiodns it would look for a name server, and there is none."""
    resolver.DefaultResolver = resolver.ThreadedResolver


def _with_status_and_reason(exceptions: ModuleType) -> None:
    """websockets would report the status of a refusal without its reason."""
    refused = getattr(exceptions, "InvalidProxyStatus", None)
    if refused is not None:
        tell = refused.__str__
        refused.__str__ = lambda self: f"{tell(self)} {self.response.reason_phrase}"


def _with_reason(exceptions: ModuleType) -> None:
    """boto3 would report who refused, or what was unreachable, without the reason, which it has."""
    for refused in (exceptions.ProxyConnectionError, exceptions.EndpointConnectionError):
        _tell_reason(refused)


def _tell_reason(refused: Any) -> None:
    tell = refused.__str__

    def __str__(self: Any) -> str:
        reason = self.kwargs.get("error")
        return tell(self) if reason is None else f"{tell(self)}: {reason}"

    refused.__str__ = __str__
