"""Measures the effect of an attack by one client on another: latency of one-shot executions, and the server's memory.

Starts a server of its own in a temporary directory, measures calm executions, then runs each attack from a second
principal's key while the first client continues. `spin` is the control: busy code that attacks nothing, so that what the
attack adds can be distinguished from sharing two cores. Prints one row per attack; exits with 1 if a bound is missed.

    python3 bench/neighbour.py target/dist/belljar [--samples 150] [--only frames,output]
"""

import argparse
import http.client
import json
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

P99_RATIO_MAX = 3.0
MEMORY_BACK_MIB = 64
MEMORY_BACK_SECONDS = 30

FRAMES = """
import os, json
body = json.dumps({"ev": "result", "data": {"text/plain": "x"}, "main": False}).encode()
piece = (len(body).to_bytes(4, "little") + body) * 200
for _ in range(3):
    if os.fork() == 0:
        break
while True:
    os.write(3, piece)
"""

FRAMES_BETWEEN = """
import os, json
body = json.dumps({"ev": "result", "data": {"text/plain": "x"}, "main": False}).encode()
piece = (len(body).to_bytes(4, "little") + body) * 200
for _ in range(3):
    if os.fork() == 0:
        while True:
            os.write(3, piece)
"""

FORGED_DONE = """
import os
value = "[" + ",".join(["[]"] * 2_500_000) + "]"
body = ('{"ev":"done","error":null,"exit_code":null,"value":%s}' % value).encode()[:8_000_000]
data = len(body).to_bytes(4, "little") + body
while data:
    data = data[os.write(3, data):]
"""

SLOW_DEATH = """
import os, time
kept = bytearray(b"x") * (300 << 20)
for _ in range(50):
    if os.fork() == 0:
        time.sleep(60)
os._exit(0)
"""

MEMORY = """
import mmap
held = []
while True:
    area = mmap.mmap(-1, 16 << 20)
    area.write(b"x" * (16 << 20))
    held.append(area)
"""

OUTPUT = """
import os
line = b"x" * 65535 + b"\\n"
for _ in range(256):
    os.write(1, line)
"""

PIECES = """
import os, time
until = time.monotonic() + 3
while time.monotonic() < until:
    os.write(1, b"x")
"""

SPIN = "import time\nuntil = time.monotonic() + 3\nwhile time.monotonic() < until: pass"

# Code, how many at once, limits of each.
ATTACKS = {
    "spin": (SPIN, 4, {"wall_ms": 5000}),
    "frames": (FRAMES, 4, {"wall_ms": 2000}),
    "forged_done": (FORGED_DONE, 4, {"wall_ms": 5000}),
    "slow_death": (SLOW_DEATH, 4, {"wall_ms": 20000, "cpu_percent": 3, "memory_bytes": 400 << 20, "processes": 64}),
    "memory": (MEMORY, 4, {"wall_ms": 5000}),
    "output": (OUTPUT, 14, {"wall_ms": 10000, "output_bytes": 16 << 20}),
    "pieces": (PIECES, 4, {"wall_ms": 5000}),
}


class Client:
    """One kept connection with one key."""

    def __init__(self, port, key):
        self.port, self.key = port, key
        self.connection = None

    def call(self, method, path, body=None):
        for attempt in (1, 2):
            if self.connection is None:
                self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
            try:
                headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
                self.connection.request(method, path, json.dumps(body) if body is not None else None, headers)
                answer = self.connection.getresponse()
                return answer.status, answer.read()
            except (OSError, http.client.HTTPException):
                self.connection = None
                if attempt == 2:
                    raise


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(binary, data, port):
    command = [binary, "serve", "--environment", "bare", "--listen", f"127.0.0.1:{port}", "--data", data]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines, key = [], None
    for line in server.stdout:
        lines.append(line)
        key = key or next(iter(re.findall(r"bj_[\w-]+", line)), None)
        if key and str(port) in "".join(lines):
            break
    if key is None:
        sys.exit("the server did not start:\n" + "".join(lines))
    threading.Thread(target=server.stdout.read, daemon=True).start()
    return server, key


def rss_mib(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))]


def sample(client, count, seconds):
    """Milliseconds of one-shot executions, and how many were refused."""
    took, refused, until = [], 0, time.monotonic() + seconds
    while len(took) < count and time.monotonic() < until:
        begin = time.monotonic()
        status, body = client.call("POST", "/v1/execute", {"code": "print(1)"})
        if status == 200 and json.loads(body)["status"] == "succeeded":
            took.append((time.monotonic() - begin) * 1000)
        else:
            refused += 1
    return took, refused


def attack(port, key, name, stop):
    code, _, limits = ATTACKS[name]
    client = Client(port, key)
    while not stop.is_set():
        try:
            client.call("POST", "/v1/execute", {"code": code, "limits": limits})
        except OSError:
            time.sleep(0.2)


def attack_at_once(port, key, name, stop):
    # Its client stands for another machine, so its own work must not take the cores from the server. Only the client
    # is nice: the sandboxes are children of the server.
    os.nice(19)
    threads = [threading.Thread(target=attack, args=(port, key, name, stop)) for _ in range(ATTACKS[name][1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--samples", type=int, default=150)
    parser.add_argument("--only", default=",".join(ATTACKS))
    options = parser.parse_args()
    # A killed measurement must not leave its server behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    port, missed = free_port(), False
    with tempfile.TemporaryDirectory() as data:
        server, key = start(os.path.abspath(options.binary), data, port)
        try:
            victim = Client(port, key)
            _, made = victim.call("POST", "/v1/principals", {"name": "attacker", "kind": "service"})
            attacker = json.loads(made)["id"]
            _, workspaces = victim.call("GET", "/v1/workspaces")
            workspace = json.loads(workspaces)["items"][0]["id"]
            grant = {"principal": attacker, "privilege": "USAGE", "object": {"kind": "workspace", "id": workspace}}
            status, answer = victim.call("POST", "/v1/grants", grant)
            assert status in (200, 201), answer
            _, made = victim.call("POST", "/v1/keys", {"name": "attack", "principal": attacker})
            attack_key = json.loads(made)["secret"]
            sample(victim, 30, 30)
            calm, _ = sample(victim, options.samples, 60)
            p50, p99 = percentile(calm, 0.5), percentile(calm, 0.99)
            before = rss_mib(server.pid)
            print(f"{'calm':12} p50 {p50:8.1f} ms  p99 {p99:8.1f} ms  RSS {before:.0f} MiB", flush=True)
            for name in options.only.split(","):
                before = rss_mib(server.pid)
                # The attackers are a process of their own: reading what they are answered must not
                # hold the interpreter lock of the client that is measured.
                stop = multiprocessing.Event()
                attackers = multiprocessing.Process(target=attack_at_once, args=(port, attack_key, name, stop))
                attackers.start()
                time.sleep(1)
                took, refused = sample(victim, options.samples, 60)
                peak = rss_mib(server.pid)
                stop.set()
                attackers.join()
                until = time.monotonic() + MEMORY_BACK_SECONDS
                while (after := rss_mib(server.pid)) > before + MEMORY_BACK_MIB and time.monotonic() < until:
                    time.sleep(0.5)
                ratio = percentile(took, 0.99) / p99 if took else float("inf")
                late = ratio > P99_RATIO_MAX and name != "spin"
                kept = after > before + MEMORY_BACK_MIB
                missed = missed or late or kept
                print(
                    f"{name:12} p50 {percentile(took, 0.5) if took else 0:8.1f} ms  "
                    f"p99 {percentile(took, 0.99) if took else 0:8.1f} ms ({ratio:.1f} x){' MISSED' if late else ''}  "
                    f"n {len(took)} refused {refused}  RSS {before:.0f} -> {peak:.0f} -> {after:.0f} MiB{' MISSED' if kept else ''}",
                    flush=True,
                )
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
