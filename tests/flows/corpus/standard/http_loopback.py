import http.server
import json
import threading
import urllib.error
import urllib.request


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/json":
            return self.send_error(404)
        body = json.dumps({"path": self.path}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://localhost:{server.server_port}"
    print(json.load(urllib.request.urlopen(base + "/json")))
    try:
        urllib.request.urlopen(base + "/nothing")
    except urllib.error.HTTPError as error:
        print(error.code)
    server.shutdown()
