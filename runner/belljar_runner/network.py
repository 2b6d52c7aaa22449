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
proxy_address = ("127.0.0.1", 3128)

# Called for attempts that no proxy sees.
on_refused: Callable[[str], None] | None = None

# The proxy times out sooner. For non-blocking sockets, which must wait here nevertheless.
_TIMEOUT_SECONDS = 60.0
# The proxy is on the same machine, and accepts or refuses at once.
_PROBE_SECONDS = 1.0
_RESPONSE_BYTES_MAX = 16 * 1024
# 198.18.0.0/15 is reserved for benchmarks (RFC 2544): no host has these addresses.
_FIRST_PLACEHOLDER = int.from_bytes(socket.inet_aton("198.18.0.1"), "big")
# A process with more names than this forgets the oldest.
_NAMES_MAX = 65_536

_NOT_ALLOWED = "network access is not allowed: "
_NOT_OPENED = (
    "{} is not allowed by any integration of this session; list one that allows this host in `integrations`, or in "
    "`external_access_integrations` of the agent"
)
_NO_DATAGRAMS = "UDP is not supported: datagram to {}; use TCP"
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
    name = _remote_name(host)
    if name is None or flags & socket.AI_NUMERICHOST:
        return _getaddrinfo(host, port, family, type, proto, flags)
    _check_proxy(name if port is None else f"{name}:{_text(port)}")
    placeholder = _placeholder_address(name)
    if family == socket.AF_INET6:
        placeholder = f"::ffff:{placeholder}"
    return _getaddrinfo(placeholder, port, family, type, proto, flags & ~socket.AI_ADDRCONFIG)


def gethostbyname(hostname: str, /) -> str:
    name = _remote_name(hostname)
    if name is None:
        return _gethostbyname(hostname)
    _check_proxy(name)
    return _placeholder_address(name)


def gethostbyname_ex(hostname: str, /) -> tuple[str, list[str], list[str]]:
    if _remote_name(hostname) is None:
        return _gethostbyname_ex(hostname)
    return hostname, [], [gethostbyname(hostname)]


def connect(self: socket.socket, address: Any, /) -> None:
    destination = _remote_destination(self, address)
    if destination is None:
        return _connect(self, address)
    _tunnel(self, destination)


def connect_ex(self: socket.socket, address: Any, /) -> int:
    try:
        destination = _remote_destination(self, address)
        if destination is None:
            return _connect_ex(self, address)
        _tunnel(self, destination)
    except socket.gaierror:
        raise
    except OSError as error:
        return error.errno or errno.EAGAIN
    return 0


def sendto(self: socket.socket, *args: Any) -> int:
    if len(args) > 1:
        _remote_destination(self, args[-1])
    return _sendto(self, *args)


def sendmsg(self: socket.socket, *args: Any) -> int:
    if len(args) > 3:
        _remote_destination(self, args[3])
    return _sendmsg(self, *args)


async def sock_connect(self: BaseSelectorEventLoop, sock: socket.socket, address: Any) -> None:
    """Like `connect`, without blocking the other tasks of the loop."""
    destination = _remote_destination(sock, address)
    if destination is None:
        return await _sock_connect(self, sock, address)
    try:
        await _sock_connect(self, sock, _proxy_address_for(sock))
    except ConnectionRefusedError:
        raise _refusal(Denied, destination) from None
    response = bytearray()
    try:
        await self.sock_sendall(sock, _connect_request(destination))
        while _is_incomplete(response, await self.sock_recv(sock, 1)):
            pass
        _check_response(response, destination)
    except BaseException:
        _shut_down(sock)
        raise


def _tunnel(sock: socket.socket, destination: str) -> None:
    timeout = _gettimeout(sock)
    limit = _TIMEOUT_SECONDS if timeout == 0 else timeout
    deadline = None if limit is None else monotonic() + limit
    _settimeout(sock, limit)
    try:
        try:
            _connect(sock, _proxy_address_for(sock))
        except ConnectionRefusedError:
            raise _refusal(Denied, destination) from None
        try:
            _request_connection(sock, destination, deadline)
        except BaseException:
            _shut_down(sock)
            raise
    finally:
        _settimeout(sock, timeout)


def _request_connection(sock: socket.socket, destination: str, deadline: float | None) -> None:
    _sendall(sock, _connect_request(destination))
    response = bytearray()
    # Byte by byte: what follows the response belongs to the code that requested the connection.
    while _is_incomplete(response, _recv(sock, 1)):
        if deadline is not None:
            _settimeout(sock, max(deadline - monotonic(), 0.001))
    _check_response(response, destination)


def _connect_request(destination: str) -> bytes:
    return f"CONNECT {destination} HTTP/1.1\r\nHost: {destination}\r\n\r\n".encode("ascii")


def _is_incomplete(response: bytearray, part: bytes) -> bool:
    """Whether more of the response is to come."""
    response += part
    return part != b"" and len(response) < _RESPONSE_BYTES_MAX and not response.endswith(b"\r\n\r\n")


def _check_response(response: bytearray, destination: str) -> None:
    status, _, reason = response.partition(b"\r\n")[0].decode("latin-1").partition(" ")[2].partition(" ")
    if status.startswith("2"):
        return
    if status == "403":
        raise Denied(reason.removeprefix(_DENIED) or _NOT_OPENED.format(destination))
    if reason.endswith(_UNRESOLVED):
        raise socket.gaierror(socket.EAI_NONAME, reason)
    if status == "504":
        raise TimeoutError(errno.ETIMEDOUT, reason)
    raise ConnectionRefusedError(errno.ECONNREFUSED, reason or f"{destination}: the egress proxy closed the connection")


def _shut_down(sock: socket.socket) -> None:
    try:
        _shutdown(sock, socket.SHUT_RDWR)
    except OSError:
        pass  # it is over already


def _proxy_address_for(sock: socket.socket) -> tuple[str, int]:
    host, port = proxy_address
    return (f"::ffff:{host}" if _family(sock) == socket.AF_INET6 else host), port


def _check_proxy(destination: str) -> None:
    """Checked each time: the host opens and closes the proxy at any time."""
    probe = _Plain(socket.AF_INET, socket.SOCK_STREAM)
    try:
        _settimeout(probe, _PROBE_SECONDS)
        if _connect_ex(probe, proxy_address) != 0:
            raise _refusal(NameDenied, destination)
    finally:
        probe.close()


def _refusal(error: type[OSError], destination: str, why: str = _NOT_OPENED) -> OSError:
    """Reports the refusal to the host, which logs it, and returns the error for the code."""
    if on_refused is not None:
        on_refused(destination)
    return error(why.format(destination))


def _remote_destination(sock: socket.socket, address: Any) -> str | None:
    """Host and port outside of the sandbox, or None if Python should proceed as usual, even into an error."""
    if _family(sock) not in _INTERNET or not isinstance(address, tuple) or len(address) < 2:
        return None
    host, port = _text(address[0]), address[1]
    if not isinstance(host, str) or not isinstance(port, int) or not 0 <= port < 65_536:
        return None
    packed = _packed(host)
    remote = _remote_name(host) if packed is None else _remote_ip(packed)
    if remote is None:
        return None
    destination = f"[{remote}]:{port}" if ":" in remote else f"{remote}:{port}"
    if _kind(sock) != socket.SOCK_STREAM:
        raise _refusal(Denied, destination, _NO_DATAGRAMS)
    return destination


def _remote_name(host: Any) -> str | None:
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


def _remote_ip(packed: bytes) -> str | None:
    """What an address stands for, or is; None for the sandbox's own."""
    if len(packed) == 16:
        if packed[:12] != b"\0" * 10 + b"\xff\xff":
            here = packed[:15] == b"\0" * 15 and packed[15] < 2
            return None if here else socket.inet_ntop(socket.AF_INET6, packed)
        packed = packed[12:]
    if packed[0] == 127 or packed == b"\0" * 4:
        return None
    return _names.get(int.from_bytes(packed, "big") - _FIRST_PLACEHOLDER) or socket.inet_ntoa(packed)


def _packed(host: str) -> bytes | None:
    try:
        if ":" in host:
            return socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
        return socket.inet_aton(host)
    except (OSError, ValueError):
        return None


def _text(host: Any) -> Any:
    return host.decode("latin-1") if isinstance(host, (bytes, bytearray)) else host


def _placeholder_address(name: str) -> str:
    """The placeholder address of a name in this process. No lock: one could be held during a fork."""
    number = _numbers.get(name)
    if number is None or _names.get(number) != name:
        number = next(_next_number) % _NAMES_MAX
        _numbers.pop(_names.get(number, ""), None)
        _names[number], _numbers[name] = name, number
    return socket.inet_ntoa((_FIRST_PLACEHOLDER + number).to_bytes(4, "big"))


def _without_proxy_of_plain_http(request: ModuleType) -> None:
    """Clients read the proxy variables through this function. For plain http they would take the proxy's error for the
    host's response; a connection that they open themselves is requested first, and fails with an exception.
    """
    of_variables = request.getproxies_environment

    def getproxies_environment() -> dict[str, str]:
        own = "http://{}:{}".format(*proxy_address)
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
        describe = refused.__str__
        refused.__str__ = lambda self: f"{describe(self)} {self.response.reason_phrase}"


def _with_reason(exceptions: ModuleType) -> None:
    """boto3 would report who refused, or what was unreachable, without the reason, which it has."""
    for refused in (exceptions.ProxyConnectionError, exceptions.EndpointConnectionError):
        _add_reason(refused)


def _add_reason(refused: Any) -> None:
    describe = refused.__str__

    def __str__(self: Any) -> str:
        reason = self.kwargs.get("error")
        return describe(self) if reason is None else f"{describe(self)}: {reason}"

    refused.__str__ = __str__
