import os
import select
import selectors
import socket

a, b = socket.socketpair()
a.send(b"x")
print(b.recv(1), select.select([a], [b], [], 0) == ([], [b], []))
with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
    server.bind("corpus.sock")
    server.listen()
    client.connect("corpus.sock")
    print(server.accept()[0].fileno() > 0)
os.remove("corpus.sock")
with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
    with socket.create_connection(server.getsockname()[:2]) as client:
        print(client.family.name)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("127.0.0.1", 0))
udp.sendto(b"datagram", udp.getsockname())
print(udp.recv(100))
print(socket.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)[0][4], socket.gethostbyname("localhost"))
print(socket.getservbyname("http") if os.path.exists("/etc/services") else 80)
selector = selectors.DefaultSelector()
selector.register(a, selectors.EVENT_WRITE)
print(len(selector.select(0)), type(selector).__name__)
