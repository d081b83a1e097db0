"""Real HTTP servers on loopback addresses: model servers that answer, and strangers that do anything but."""

import itertools
import json
import socket
import socketserver
import threading
import time
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_ADDRESSES = itertools.count(1)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def next_address():
    """An address of the loopback that no other server of this run has."""
    number = next(_ADDRESSES)
    return f"127.77.{number // 250}.{number % 250 + 1}"


class ModelServer(ThreadingHTTPServer):
    """Serves one exposition and one list of models; both may be changed while it runs."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, metrics, *, models=None, address=None, port=0):
        self.metrics = metrics
        self.models = models
        self.requests = []
        super().__init__((address or next_address(), port), _Handler)
        self.address, self.port = self.server_address

    def handle_error(self, *_):
        """A client that was told enough hangs up."""


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append((self.path, dict(self.headers)))
        if self.path == "/metrics":
            self._send(self.server.metrics.encode(), "text/plain; version=0.0.4; charset=utf-8")
        elif self.path == "/v1/models" and self.server.models is not None:
            listed = [
                {"id": name, "object": "model", "parent": parent} for name, parent in self.server.models
            ]
            self._send(json.dumps({"object": "list", "data": listed}).encode(), "application/json")
        else:
            self.send_error(404)

    def _send(self, body, content_type):
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Stranger(socketserver.ThreadingTCPServer):
    """Reads a request and does what `behave(connection)` says."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, behave, *, address=None, port=0):
        self.behave = behave
        self.accepted = 0
        self.over = threading.Event()
        super().__init__((address or next_address(), port), _StrangerHandler)
        self.address, self.port = self.server_address

    def server_close(self):
        self.over.set()
        super().server_close()

    def handle_error(self, *_):
        """A client that has enough hangs up."""


class _StrangerHandler(socketserver.BaseRequestHandler):
    def handle(self):
        self.server.accepted += 1
        received = b""
        while b"\r\n\r\n" not in received:
            part = self.request.recv(4096)
            if not part:
                return
            received += part
        self.server.behave(self.request, self.server.over)


def answer(body, *, status="200 OK", headers=()):
    """Return what sends one whole answer."""
    if isinstance(body, str):
        body = body.encode()
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]

    def behave(connection, _over):
        connection.sendall("\r\n".join(lines).encode() + body)

    return behave


def hang(_connection, over):
    over.wait(30)


def close(_connection, _over):
    """Say nothing and hang up."""


def _endlessly(connection, over, part, pause=0.0):
    while not over.is_set():
        connection.sendall(part)
        if pause:
            time.sleep(pause)


def endless_stream(connection, over):
    """As fast as it goes, in chunks, without end."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    _endlessly(connection, over, b"1000\r\n" + b"a 1\n" * 1024 + b"\r\n")


def trickle(connection, over):
    """A byte now and then: each read succeeds, the whole never ends."""
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    _endlessly(connection, over, b"#", 0.05)


def trickle_of_headers(connection, over):
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    _endlessly(connection, over, b"X", 0.05)


def gigabyte(connection, _over):
    """A body of 1 GiB, with its length."""
    connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {1 << 30}\r\n\r\n".encode())
    part = b"vllm:num_requests_waiting 1\n" * 2340
    for _ in range((1 << 30) // len(part)):
        connection.sendall(part)


class Servers(ExitStack):
    """Starts servers; all end with it."""

    def model_server(self, metrics, **options):
        return self._started(ModelServer(metrics, **options))

    def stranger(self, behave, **options):
        return self._started(Stranger(behave, **options))

    def _started(self, server):
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        self.callback(thread.join, 5)
        self.callback(server.server_close)
        self.callback(server.shutdown)
        return server
