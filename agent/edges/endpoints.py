"""Asks model servers over HTTP what they serve: without credentials, without following anybody, within hard bounds.

The only module that requests anything from a pod. Pods are strangers: one may hang, stream without end, redirect to
another host, or answer what is no metric at all; each becomes a `Refusal`.
"""

import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
from typing import TypeVar

import msgspec
import urllib3
from prometheus_client.parser import text_string_to_metric_families
from urllib3.connection import HTTPConnection

from agent.core.pools.lora import Model
from agent.core.pools.serving import Reading, Refusal

SECONDS = 2.0
MAX_BYTES = 1024 * 1024
AT_ONCE = 8

_CHUNK = 64 * 1024
_SAMPLE_BYTES = 16 * 1024
_HEADERS = {"Accept": "text/plain;version=0.0.4, */*;q=0.1", "User-Agent": "accelerator-discovery-agent"}

T = TypeVar("T")
R = TypeVar("R")


class _ModelEntry(msgspec.Struct):
    id: str
    parent: str | None = None


class _ModelList(msgspec.Struct):
    data: list[_ModelEntry]


@dataclass(frozen=True, slots=True)
class _Body:
    content: bytes
    type: str


class Endpoints:
    """Requests to pods. Safe to share between threads."""

    def __init__(
        self, *, seconds: float = SECONDS, max_bytes: int = MAX_BYTES, at_once: int = AT_ONCE
    ) -> None:
        """`seconds` bounds one request from the first packet to the last."""
        self._seconds = seconds
        self._max_bytes = max_bytes
        self._at_once = at_once

    def readings(self, address: str, port: int, names: Collection[str]) -> tuple[Reading, ...] | Refusal:
        """Return the series of these families that `/metrics` shows."""
        body = self._get(address, port, "/metrics")
        return body if isinstance(body, Refusal) else _readings(body, names)

    def models(self, address: str, port: int) -> tuple[Model, ...] | Refusal:
        """Return what `/v1/models` lists."""
        body = self._get(address, port, "/v1/models")
        if isinstance(body, Refusal):
            return body
        try:
            listed = msgspec.json.decode(body.content, type=_ModelList)
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
            return Refusal(word="not-models", message=f"it answers no list of models: {error}")
        return tuple(Model(entry.id, entry.parent) for entry in listed.data)

    def each(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Yield `function` of each item in order, a few at a time."""
        with ThreadPoolExecutor(self._at_once, thread_name_prefix="endpoints") as pool:
            yield from pool.map(function, items)

    def _get(self, address: str, port: int, path: str) -> _Body | Refusal:
        problem = _address_problem(address)
        if problem:
            return Refusal(word="no-answer", message=problem)
        deadline = time.monotonic() + self._seconds
        # No pool, no proxy, no redirects: a connection alone does none of it.
        connection = HTTPConnection(address, port, timeout=self._seconds)
        cut_off = _CutOff(connection, self._seconds)
        try:
            with cut_off:
                return self._answer(connection, path, deadline)
        except (urllib3.exceptions.HTTPError, HTTPException, OSError, ValueError) as error:
            # `ValueError` comes of lengths and chunk sizes that are no numbers.
            late = cut_off.happened or _is_timeout(error)
            words = f"it did not answer within {self._seconds:g} s" if late else f"no answer: {_plain(error)}"
            return Refusal(word="no-answer", message=words)
        finally:
            connection.close()

    def _answer(self, connection: HTTPConnection, path: str, deadline: float) -> _Body | Refusal:
        connection.connect()
        _check_time(deadline)
        connection.request("GET", path, headers=_HEADERS, preload_content=False, decode_content=False)
        response = connection.getresponse()
        if 300 <= response.status <= 399:
            return Refusal(
                word="redirect", message=f"{path} redirects ({response.status}), which is not followed"
            )
        if response.status != 200:
            return Refusal(word="status", message=f"{path} answers {response.status}")
        content = bytearray()
        while chunk := response.read1(_CHUNK, decode_content=False):
            content += chunk
            if len(content) > self._max_bytes:
                return Refusal(word="too-large", message=f"{path} is larger than {self._max_bytes >> 10} KiB")
            _check_time(deadline)
        _check_time(deadline)  # a body without a length ends when it is cut off
        if response.headers.get("Content-Encoding", "identity") != "identity":
            return Refusal(word="not-metrics", message=f"{path} is compressed, which was not asked for")
        return _Body(bytes(content), response.headers.get("Content-Type", ""))


class _CutOff:
    """Ends a connection's reads when its time is over.

    A timeout of a socket bounds each read alone: a server that sends a byte a second would be listened to for hours.
    """

    def __init__(self, connection: HTTPConnection, seconds: float) -> None:
        self.happened = False
        self._connection = connection
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> "_CutOff":
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _cut(self) -> None:
        self.happened = True
        sock = self._connection.sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:  # it was closed at this very moment
                return


def _check_time(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError


def _is_timeout(error: BaseException) -> bool:
    """Tell a timeout from a refused connection, which the library counts among its timeouts."""
    timeouts = TimeoutError | urllib3.exceptions.TimeoutError
    return isinstance(error, timeouts) and not isinstance(error, urllib3.exceptions.NewConnectionError)


def _address_problem(address: str) -> str:
    """Return why an address cannot be a pod's; a link-local one is a cloud's metadata service."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return f"{address} is no IP address"
    if parsed.is_link_local or parsed.is_multicast or parsed.is_unspecified:
        return f"{address} is no address of a pod"
    return ""


def _readings(body: _Body, names: Collection[str]) -> tuple[Reading, ...] | Refusal:
    """Parse the lines of these families alone: a server's histograms are a hundred times as long."""
    try:
        text = body.content.decode()
    except UnicodeDecodeError:
        return Refusal(word="not-metrics", message="/metrics is no text")
    if "html" in body.type.lower() or text.lstrip()[:1] == "<":
        return Refusal(word="not-metrics", message="/metrics is a page (HTML), no metrics")
    lines = [line for line in text.splitlines() if _family(line) in names]
    try:
        families = list(text_string_to_metric_families("\n".join(lines) + "\n"))
        if not lines:
            # Nothing known: is it an exposition at all? Its beginning tells.
            whole = text[:_SAMPLE_BYTES].rpartition("\n")[0] if len(text) > _SAMPLE_BYTES else text
            list(text_string_to_metric_families(whole))
    except (ValueError, KeyError, IndexError, AttributeError) as error:
        # The parser raises what its string functions do on broken lines.
        return Refusal(word="not-metrics", message=f"/metrics cannot be parsed: {_plain(error)}")
    return tuple(
        Reading(sample.name, sample.labels, sample.value)
        for family in families
        for sample in family.samples
        if sample.name in names
    )


def _family(line: str) -> str:
    """Return the name that a line of an exposition is about."""
    if line.startswith("#"):
        parts = line.split(maxsplit=3)
        return parts[2] if len(parts) > 2 and parts[1] in {"HELP", "TYPE"} else ""
    for position, character in enumerate(line):
        if character in "{ \t":
            return line[:position]
    return line


def _plain(error: BaseException) -> str:
    """Return the words of an error without the library's own around them."""
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    text = (cause.strerror if isinstance(cause, OSError) else None) or str(cause) or type(cause).__name__
    return text[:200]
