"""One request to an API server as a value: its path, query and body, when to send it again, and what a watch answers.

Pure but for the jitter of a pause; knows no client.
"""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from agent.cluster import (
    ClusterError,
    Conflict,
    Object,
    Projection,
    Resource,
    ServerFault,
    Throttled,
    Unreachable,
    WatchEvent,
)
from agent.refusals import refusal

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """All that one attempt needs."""

    verb: str
    """For people and metrics: `get`, `list`, `watch`, `create`, `update`, `patch`, `apply`, `delete`."""
    method: str
    resource: Resource
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: Object | None = None
    content_type: str = JSON
    conflict_may_pass: bool = False
    """A 409 without named fields is a race that the same request can win the next time."""


def api_request(
    verb: str,
    method: str,
    resource: Resource,
    *,
    namespace: str | None = None,
    name: str | None = None,
    subresource: str | None = None,
    query: tuple[tuple[str, str], ...] = (),
    body: Object | None = None,
    content_type: str = JSON,
    conflict_may_pass: bool = False,
) -> ApiRequest:
    """Return the request for an object, its subresource, or, without a name, the collection."""
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    scope = f"namespaces/{namespace}" if namespace and resource.namespaced else None
    parts = [root, scope, resource.plural, name, subresource]
    return ApiRequest(
        verb=verb,
        method=method,
        resource=resource,
        path="/".join(part for part in parts if part),
        query=query,
        body=body,
        content_type=content_type,
        conflict_may_pass=conflict_may_pass,
    )


def pause_before_retry(error: ClusterError, request: ApiRequest, attempt: int) -> float | None:
    """Return the seconds until the same request may be sent again, `None` when it would be in vain."""
    # Half of it jitter: a thousand agents that were refused together must not come back together.
    backoff: float = min(0.1 * 2**attempt, 5.0) * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
    match error:
        case Throttled(retry_after_seconds=stated):
            return max(backoff, (stated or 0.0) * random.uniform(1.0, 1.25))  # noqa: S311 - no secret
        case ServerFault(permanent=False) | Unreachable():
            return backoff
        case Conflict(conflicts=()) if request.conflict_may_pass:
            return backoff
        case _:
            return None


def lines_of(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a stream as they arrive; one line may span many chunks."""
    rest = bytearray()
    for chunk in chunks:
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            rest += chunk[start:end]
            if rest:
                yield bytes(rest)
            rest.clear()
            start = end + 1
        rest += chunk[start:]


def watch_event(line: bytes, project: Projection | None) -> WatchEvent:
    """Return the event of one line. Raises what an ERROR event tells of, `ServerFault` for what is no event."""
    try:
        decoded = msgspec.json.decode(line)
        kind, content = decoded["type"], decoded["object"]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise ServerFault(f"a watch sent what is no event: {error}") from error
    if kind == "ERROR":
        raise refusal(int(content.get("code") or 500), content)
    metadata = content.get("metadata", {})
    version = metadata.get("resourceVersion", "")
    if kind == "BOOKMARK":
        ended = (metadata.get("annotations") or {}).get(_INITIAL_EVENTS_END) == "true"
        return WatchEvent("BOOKMARK", {}, version, ended)
    return WatchEvent(kind, content if project is None else project(content), version)
