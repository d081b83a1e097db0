"""What can go wrong between a client and the API server, and the script that says which request meets what.

Values and rules only; `tests.cluster.fault_proxy` plays them.
"""

import json
import re
import threading
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer of our own in place of the server's."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """The connection is reset. With `after_forwarding` the server has done what was asked and only the answer is lost."""

    after_forwarding: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """The connection stays open and nothing comes, until the client gives up or the proxy closes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """The request is passed on `seconds` late."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfAnswer:
    """The server's answer breaks off in its middle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutWatch:
    """The stream ends `seconds` after it began: in order, or by a reset where `abruptly`."""

    seconds: float
    abruptly: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchError:
    """A watch begins well and tells of an error as its first event, as an expired version (410) comes."""

    status: int = 410


Fault = Reply | Reset | Silence | Delay | HalfAnswer | CutWatch | WatchError

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def refusal(status: int, *, retry_after: int | None = None, message: str | None = None) -> Reply:
    """Return an answer such as the API server gives to a request that it does not carry out."""
    body = json.dumps(status_object(status, message)).encode()
    headers = [("Content-Type", "application/json")]
    if retry_after is not None:
        headers.append(("Retry-After", str(retry_after)))
    return Reply(status=status, body=body, headers=tuple(headers))


def status_object(status: int, message: str | None = None) -> dict[str, Any]:
    """Return the object that a refusal carries."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message or f"a fault of the test: {status}",
        "reason": REASONS.get(status, "Unknown"),
        "code": status,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRequest:
    """One request as it came."""

    method: str
    path: str
    query: dict[str, str]
    fault: Fault | None
    """What it met, `None` when it was passed on."""

    @property
    def is_watch(self) -> bool:
        """Whether it asks for a stream of changes."""
        return self.query.get("watch") in {"true", "1"}


@dataclass(slots=True, kw_only=True)
class Rule:
    """One line of the script."""

    fault: Fault
    method: str | None
    path: re.Pattern[str]
    query: re.Pattern[str] | None
    watch: bool | None
    after: int
    times: int | None
    hits: int = 0
    """How many requests have met the fault."""
    fitting: int = 0
    """How many requests fitted, those that were let pass first included."""

    def takes(self, method: str, path: str, query: str) -> bool:
        """Tell whether this request meets the fault, and count it."""
        is_watch = re.search(r"(^|&)watch=(true|1)(&|$)", query) is not None
        if (
            (self.method is not None and method != self.method)
            or not self.path.search(path)
            or (self.query is not None and not self.query.search(query))
            or (self.watch is not None and is_watch != self.watch)
            or (self.times is not None and self.hits >= self.times)
        ):
            return False
        self.fitting += 1
        if self.fitting <= self.after:
            return False
        self.hits += 1
        return True


@dataclass(slots=True)
class Script:
    """The rules and what they met; safe to share between threads."""

    rules: list[Rule] = field(default_factory=list)
    seen: list[SeenRequest] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fault_for(self, method: str, url: str) -> Fault | None:
        """Note a request and return the fault of the first rule that takes it."""
        parts = urlsplit(url)
        with self.lock:
            rule = next((one for one in self.rules if one.takes(method, parts.path, parts.query)), None)
            fault = rule.fault if rule is not None else None
            query = {key: values[-1] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
            self.seen.append(SeenRequest(method=method, path=parts.path, query=query, fault=fault))
        return fault
