"""A proxy in front of the API server that plays a script of faults: standard library only.

The first rule that fits a request and is not used up decides. A request that no rule fits is passed on, and its answer
passed back.
"""

import http.client
import json
import os
import re
import socket
import ssl
import struct
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.cluster.certificates import Certificates
from tests.cluster.faults import (
    CutWatch,
    Delay,
    Fault,
    HalfAnswer,
    Reply,
    Reset,
    Rule,
    Script,
    SeenRequest,
    Silence,
    WatchError,
    status_object,
)

HOP_HEADERS = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})
CHUNK = 65536


class FaultProxy:
    """Listens on a free port with the API server's own certificate, from `start` to `close`."""

    def __init__(self, upstream: str, certificates: Certificates) -> None:
        """`upstream` is the API server's URL."""
        self._script = Script()
        self._closing = threading.Event()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificates.server, certificates.server_key)
        self._server = _Server(_Passage(upstream, certificates, self._script, self._closing), tls)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def seen(self) -> tuple[SeenRequest, ...]:
        """Every request so far, in order."""
        with self._script.lock:
            return tuple(self._script.seen)

    def add(
        self,
        fault: Fault,
        *,
        method: str | None = None,
        path: str = "",
        query: str | None = None,
        watch: bool | None = None,
        after: int = 0,
        times: int | None = None,
    ) -> Rule:
        """Put a rule at the end of the script and return it, to read its `hits`.

        `path` and `query` are patterns searched in the URL's parts (`query="continue="` fits page two of a list and
        later ones). The first `after` fitting requests pass, then `times` of them meet the fault, `None` for all.
        """
        rule = Rule(
            fault=fault,
            method=method,
            path=re.compile(path),
            query=re.compile(query) if query is not None else None,
            watch=watch,
            after=after,
            times=times,
        )
        with self._script.lock:
            self._script.rules.append(rule)
        return rule

    def clear(self) -> None:
        """Forget all rules: everything passes from now on. Connections that are silent stay so."""
        with self._script.lock:
            self._script.rules.clear()

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening and break every connection."""
        self._closing.set()
        self._server.shutdown()
        self._server.break_connections()
        self._server.server_close()
        self._thread.join()


@dataclass(frozen=True, slots=True)
class _Passage:
    """What every connection needs to pass requests on."""

    upstream: str
    certificates: Certificates
    script: Script
    closing: threading.Event

    def connect(self) -> http.client.HTTPSConnection:
        address = urlsplit(self.upstream)
        trust = ssl.create_default_context(cafile=str(self.certificates.authority))
        return http.client.HTTPSConnection(address.hostname or "", address.port, timeout=60, context=trust)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, passage: _Passage, tls: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.passage = passage
        self._tls = tls
        self._open: set[socket.socket] = set()

    def get_request(self) -> tuple[socket.socket, Any]:
        plain, address = super().get_request()
        # The handshake is left to the connection's thread: a client that stalls must not stall the others.
        secured = self._tls.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        self._open.add(secured)
        return secured, address

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def note(self, connection: socket.socket) -> None:
        """Remember a connection, to break it at the end."""
        self._open.add(connection)

    def forget(self, connection: socket.socket) -> None:
        """Forget a connection that is over."""
        self._open.discard(connection)

    def break_connections(self) -> None:
        """End every connection, so that no thread goes on waiting for one."""
        for connection in list(self._open):
            _shut(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that hangs up, or refuses the certificate, is no failure of the proxy.
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    connection: ssl.SSLSocket

    def handle_one_request(self) -> None:
        """Read one request and answer it, whatever its method."""
        line = self.rfile.readline(CHUNK)
        self.raw_requestline = line
        if not line or not self.parse_request():
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._answer(self.server.passage.script.fault_for(self.command, self.path), body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that the base class gives it
        """Say nothing: `FaultProxy.seen` tells what came."""

    def _answer(self, fault: Fault | None, body: bytes) -> None:
        match fault:
            case Reply(status=status, body=content, headers=headers):
                self._reply(status, headers, content)
            case Reset(after_forwarding=False):
                self._reset()
            case Silence():
                self.server.passage.closing.wait()
                self.close_connection = True
            case WatchError(status=status):
                event = {"type": "ERROR", "object": status_object(status)}
                self._reply(200, (("Content-Type", "application/json"),), json.dumps(event).encode() + b"\n")
            case Delay(seconds=seconds):
                self.server.passage.closing.wait(seconds)
                self._forward(body, None)
            case None | Reset() | HalfAnswer() | CutWatch():
                self._forward(body, fault)

    def _forward(self, body: bytes, fault: Fault | None) -> None:
        upstream = self.server.passage.connect()
        headers = {key: value for key, value in self.headers.items() if key.lower() not in HOP_HEADERS}
        try:
            upstream.connect()
            self.server.note(upstream.sock)
            upstream.request(self.command, self.path, body or None, headers)
            self._pass_back(upstream, upstream.getresponse(), fault)
        except (http.client.HTTPException, OSError):
            # The server is down or ended the connection: so does the proxy.
            self._reset()
        finally:
            self.server.forget(upstream.sock)
            upstream.close()

    def _pass_back(
        self, upstream: http.client.HTTPSConnection, response: http.client.HTTPResponse, fault: Fault | None
    ) -> None:
        headers = tuple(
            (key, value) for key, value in response.getheaders() if key.lower() not in HOP_HEADERS
        )
        if response.length is None:
            self._stream(upstream, response, headers, fault if isinstance(fault, CutWatch) else None)
            return
        content = response.read()
        match fault:
            case Reset():
                self._reset()
            case HalfAnswer():
                self._head(response.status, headers, ("Content-Length", str(len(content))))
                self.wfile.write(content[: len(content) // 2])
                self._reset()
            case _:
                self._reply(response.status, headers, content)

    def _stream(
        self,
        upstream: http.client.HTTPSConnection,
        response: http.client.HTTPResponse,
        headers: tuple[tuple[str, str], ...],
        cut: CutWatch | None,
    ) -> None:
        """Pass a stream on as it comes, until its end or the cut."""
        self._head(response.status, headers, ("Transfer-Encoding", "chunked"))
        cutter = threading.Timer(cut.seconds, _shut, [upstream.sock]) if cut is not None else None
        if cutter is not None:
            cutter.daemon = True
            cutter.start()
        while data := _read_some(response):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        if cutter is not None:
            cutter.cancel()
        if cut is not None and cut.abruptly:
            self._reset()
            return
        self.wfile.write(b"0\r\n\r\n")

    def _reply(self, status: int, headers: tuple[tuple[str, str], ...], content: bytes) -> None:
        self._head(status, headers, ("Content-Length", str(len(content))))
        self.wfile.write(content)

    def _head(self, status: int, headers: tuple[tuple[str, str], ...], framing: tuple[str, str]) -> None:
        self.send_response_only(status)
        for key, value in (*headers, framing):
            self.send_header(key, value)
        self.end_headers()

    def _reset(self) -> None:
        """End the connection with RST: lingering for no time throws away what was not sent."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # Detached, since files made of the socket keep it open past a close.
        descriptor = self.connection.detach()
        if descriptor >= 0:
            os.close(descriptor)


def _read_some(response: http.client.HTTPResponse) -> bytes:
    """Return the next part of a stream, empty at its end, however it ends."""
    try:
        return response.read1(CHUNK)
    except (http.client.HTTPException, OSError):
        return b""


def _shut(connection: socket.socket) -> None:
    """End a connection that another thread waits for: a close alone would leave that thread waiting."""
    with suppress(OSError):  # it ended by itself
        # The plain socket's: TLS' own would take the session from under the other thread.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
