"""A host of the public internet, in a network of its own: http, https, and something that speaks first at port 22."""

import http.server
import socketserver
import ssl
import sys
import threading

ADDRESS, CERTIFICATE = sys.argv[1:]


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"here")

    def log_message(self, *_):
        pass


class Greeting(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(b"SSH-2.0-here\r\n")


socketserver.TCPServer.allow_reuse_address = True
plain = http.server.ThreadingHTTPServer((ADDRESS, 80), Page)
secure = http.server.ThreadingHTTPServer((ADDRESS, 443), Page)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(CERTIFICATE)
secure.socket = context.wrap_socket(secure.socket, server_side=True, do_handshake_on_connect=False)
other = socketserver.ThreadingTCPServer((ADDRESS, 22), Greeting)
for server in (plain, secure, other):
    threading.Thread(target=server.serve_forever).start()
print("ready", flush=True)
