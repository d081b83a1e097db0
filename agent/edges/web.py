"""The port for people and machines: `/metrics`, `/healthz`, `/readyz` and a small page at `/`.

Everything is answered from what is already known, in milliseconds; nothing is asked of the hardware or the cluster.
"""

import contextlib
import itertools
import logging
import os
import select
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from agent.core.families import Family
from agent.settings import SettingsError

LOG = logging.getLogger(__name__)

MAX_CONNECTIONS = 64
SOCKET_TIMEOUT_SECONDS = 10.0
MAX_TARGET_BYTES = 2048
MAX_FORMATS = 8
SWITCH_SECONDS = 0.0005

ACCEPT_SECONDS = 1.0
"""How long the port waits for a connection that was announced; some are gone again by then."""

_PLAIN = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the port tells; each is called once a request and must return at once."""

    families: Callable[[], Iterable[Family]]
    alive: Callable[[], tuple[bool, str]]
    """Whether the main loop runs, and a line for people."""
    ready: Callable[[], tuple[bool, str]]
    """Whether the first pass was tried, and a line for people."""
    page: Callable[[], str]
    """HTML."""


def exposition(families: Iterable[Family], accept: str = "") -> tuple[bytes, str]:
    """Return the families in the format that `accept` asks for (OpenMetrics or Prometheus text), and its type."""
    registry = CollectorRegistry()
    registry.register(_Snapshot(families))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


@dataclass(frozen=True, slots=True)
class _Rendered:
    """An exposition, its type, what it shows, and the number of the last request that it answers."""

    number: int
    families: tuple[Family, ...]
    body: bytes
    content_type: str


class Expositions:
    """Renders families for many at once.

    The values are taken after the request came; whoever asks meanwhile shares the next. Their text, which costs most, is
    made anew only where a value is another than before.
    """

    def __init__(self, families: Callable[[], Iterable[Family]]) -> None:
        self._families = families
        self._rendering = threading.Lock()
        self._asked = itertools.count(1)
        self._rendered: dict[str, _Rendered] = {}

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return an exposition that was begun after this call, and its type."""
        mine = next(self._asked)
        with self._rendering:
            rendered = self._rendered.get(accept)
            if rendered is None or rendered.number < mine:
                # All who have asked by now are answered by it.
                rendered = self._anew(next(self._asked), accept, rendered)
                if len(self._rendered) >= MAX_FORMATS:
                    self._rendered.clear()
                self._rendered[accept] = rendered
            return rendered.body, rendered.content_type

    def _anew(self, number: int, accept: str, before: _Rendered | None) -> _Rendered:
        families = tuple(self._families())
        if before is not None and before.families == families:
            return replace(before, number=number)
        body, content_type = exposition(families, accept)
        return _Rendered(number, families, body, content_type)


class WebServer:
    """Serves `Answers` on one port, IPv6 and IPv4, with bounded connections, requests and time."""

    def __init__(self, listen: str, answers: Answers) -> None:
        host, port = parse_listen(listen)
        try:
            self._server = _Server((host, port), answers)
        except OSError as error:
            raise SettingsError(f"listen {listen!r}: {error.strerror or error}") from error
        self._thread: threading.Thread | None = None
        self._to_stop = -1

    @property
    def port(self) -> int:
        """Return the port that is listened on, also where 0 asked for any."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Start to answer."""
        # Threads that answer hand over to each other sooner: at Python's 5 ms twenty scrapers wait four times as long.
        sys.setswitchinterval(SWITCH_SECONDS)
        told_to_stop, self._to_stop = os.pipe()
        self._thread = threading.Thread(target=self._serve, args=(told_to_stop,), name="web", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop to answer and free the port."""
        if self._thread is not None:
            os.close(self._to_stop)
            self._thread.join(2 * ACCEPT_SECONDS)
            self._thread = None
        self._server.server_close()

    def _serve(self, told_to_stop: int) -> None:
        """Answer until told to stop; nothing wakes an idle process, as `serve_forever` does to look for its end."""
        poll = select.poll()
        poll.register(self._server, select.POLLIN)
        poll.register(told_to_stop, select.POLLIN)
        while told_to_stop not in dict(poll.poll()):
            self._server.handle_request()
        os.close(told_to_stop)


def parse_listen(text: str) -> tuple[str, int]:
    """Return host and port of `[::]:9478`, `127.0.0.1:0` or `:9478` (all addresses); `SettingsError` for anything else."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(
            f"listen {text!r} must be written ADDRESS:PORT, such as [::]:9478 or 127.0.0.1:9478"
        )
    return host.strip("[]") or "::", int(port)


class _Snapshot(Collector):
    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            names = sorted({name for sample in family.samples for name in sample.labels})
            metric = _METRICS[family.kind](family.name, family.help, labels=names)
            for sample in family.samples:
                metric.add_metric([sample.labels.get(name, "") for name in names], sample.value)
            yield metric


_METRICS: dict[str, Callable[..., Any]] = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    timeout = ACCEPT_SECONDS
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], answers: Answers) -> None:
        self.answers = answers
        self.expositions = Expositions(answers.families)
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        try:
            super().__init__(address, _Handler)
        except OSError:
            if address[0] != "::":
                raise
            # A machine without IPv6 has no dual-stack socket to give.
            self.address_family = socket.AF_INET
            super().__init__(("0.0.0.0", address[1]), _Handler)  # noqa: S104  # all addresses were asked for

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # Not HTTPServer's: it looks up this machine's name, and a resolver that is slow would hold up the start.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # as the base class
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread is to be had
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # as the base class
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002  # as the base class
        passing = isinstance(sys.exception(), OSError)  # the client has gone, or took too long
        LOG.log(logging.DEBUG if passing else logging.ERROR, "a request failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "accelerator-agent"
    sys_version = ""
    timeout = SOCKET_TIMEOUT_SECONDS
    # Head and body leave in one piece: in two, the second waits for the client's acknowledgement, 40 ms on Linux.
    wbufsize = -1
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        path = self.path.split("?", 1)[0]
        answers = self.server.answers
        if len(self.path) > MAX_TARGET_BYTES:
            self._send(HTTPStatus.REQUEST_URI_TOO_LONG, b"the address is too long\n", _PLAIN)
        elif path == "/metrics":
            body, content_type = self.server.expositions.render(self.headers.get("Accept") or "")
            self._send(HTTPStatus.OK, body, content_type)
        elif path == "/healthz":
            self._verdict(*answers.alive())
        elif path == "/readyz":
            self._verdict(*answers.ready())
        elif path == "/":
            self._send(HTTPStatus.OK, answers.page().encode(), "text/html; charset=utf-8")
        else:
            self._send(HTTPStatus.NOT_FOUND, b"try /, /metrics, /healthz or /readyz\n", _PLAIN)

    do_HEAD = do_GET  # noqa: N815  # the name that the base class looks for

    def _verdict(self, good: bool, line: str) -> None:
        status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
        self._send(status, f"{line}\n".encode(), _PLAIN)

    def _send(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        with contextlib.suppress(OSError):  # the client has gone
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401  # as the base class
        LOG.debug(format, *args)
