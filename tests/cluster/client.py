"""A small client for tests that shows every answer as it is: no retries, no types, kept connections."""

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from agent.cluster import Resource

Object = dict[str, Any]

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"


class ApiError(Exception):
    """The server answered 400 or more; `answer` is what it said."""

    def __init__(self, method: str, path: str, answer: "Answer") -> None:
        super().__init__(f"{method} {path}: {answer.status} {answer.message}")
        self.answer = answer

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.answer.status


@dataclass(frozen=True, slots=True)
class Answer:
    """One response."""

    status: int
    body: Object
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def message(self) -> str:
        """The server's words of a refusal."""
        return str(self.body.get("message", ""))

    @property
    def causes(self) -> list[Object]:
        """`details.causes` of a refusal."""
        causes: list[Object] = self.body.get("details", {}).get("causes", [])
        return causes


def path_of(
    resource: Resource,
    name: str | None = None,
    *,
    namespace: str | None = None,
    subresource: str | None = None,
) -> str:
    """Return the URL path of an object, or of its collection."""
    parts = ["apis", resource.group, resource.version] if resource.group else ["api", resource.version]
    if namespace is not None:
        parts += ["namespaces", namespace]
    parts.append(resource.plural)
    parts += [part for part in (name, subresource) if part is not None]
    return "/" + "/".join(parts)


class ApiClient:
    """Requests to one server with one token. `where` is a URL path or a `Resource`."""

    def __init__(self, server: str, *, authority: Path, token: str | None, timeout: float = 30.0) -> None:
        self.server = server
        self.token = token
        self._address = urlsplit(server)
        self._timeout = timeout
        self._tls = (
            ssl.create_default_context(cafile=str(authority)) if self._address.scheme == "https" else None
        )
        self._idle: list[http.client.HTTPConnection] = []

    def close(self) -> None:
        """Close the kept connections; the client stays usable."""
        while self._idle:
            self._idle.pop().close()

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, object] | None = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Return the answer, whatever its status; `body` is sent as JSON, bytes as they are."""
        url = path + (
            "?" + urlencode({key: _query_text(value) for key, value in query.items()}) if query else ""
        )
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"Content-Type": content_type, "Accept": "application/json"} | dict(headers or {})
        if self.token is not None:
            sent["Authorization"] = f"Bearer {self.token}"
        status, received, raw = self._exchange(method, url, data, sent)
        return Answer(status, _json_or_text(raw), received)

    def ask(self, method: str, path: str, body: object = None, **options: Any) -> Object:
        """Return the body of a successful answer; raise `ApiError` for another."""
        answer = self.request(method, path, body, **options)
        if answer.status >= 400:
            raise ApiError(method, path, answer)
        return answer.body

    def get(self, where: str | Resource, name: str | None = None, *, namespace: str | None = None) -> Object:
        """Return an object or a list."""
        return self.ask("GET", _path(where, name, namespace))

    def find(
        self, where: str | Resource, name: str | None = None, *, namespace: str | None = None
    ) -> Object | None:
        """Return an object, `None` when it does not exist."""
        path = _path(where, name, namespace)
        answer = self.request("GET", path)
        if answer.status == 404:
            return None
        if answer.status >= 400:
            raise ApiError("GET", path, answer)
        return answer.body

    def items(self, where: str | Resource, *, namespace: str | None = None) -> list[Object]:
        """Return the objects of a collection."""
        items: list[Object] = self.get(where, namespace=namespace).get("items") or []
        return items

    def create(self, where: str | Resource, body: Object, *, namespace: str | None = None) -> Object:
        """POST an object into a collection."""
        return self.ask("POST", _path(where, None, namespace), body)

    def replace(
        self, where: str | Resource, name: str | None, body: Object, *, namespace: str | None = None
    ) -> Object:
        """PUT an object."""
        return self.ask("PUT", _path(where, name, namespace), body)

    def patch(
        self,
        where: str | Resource,
        name: str | None,
        body: object,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        content_type: str = MERGE,
        manager: str = "a-person",
    ) -> Object:
        """PATCH an object, by default with a JSON merge patch as the field manager `a-person`."""
        path = _path(where, name, namespace, subresource)
        return self.ask("PATCH", path, body, content_type=content_type, query={"fieldManager": manager})

    def apply(
        self,
        where: str | Resource,
        body: Object,
        *,
        manager: str = "a-person",
        force: bool = False,
        subresource: str | None = None,
    ) -> Object:
        """Server-side apply `body`; name and namespace are read from it."""
        metadata = body["metadata"]
        path = _path(where, metadata["name"], metadata.get("namespace"), subresource)
        return self.ask(
            "PATCH", path, body, content_type=APPLY, query={"fieldManager": manager, "force": force}
        )

    def delete(
        self,
        where: str | Resource,
        name: str | None = None,
        *,
        namespace: str | None = None,
        options: Object | None = None,
    ) -> None:
        """Delete an object, or all of a collection; nothing happens when it does not exist."""
        path = _path(where, name, namespace)
        answer = self.request("DELETE", path, options)
        if answer.status >= 400 and answer.status != 404:
            raise ApiError("DELETE", path, answer)

    def watch(
        self, where: str | Resource, *, namespace: str | None = None, **query: object
    ) -> Iterator[Object]:
        """Yield `{"type": …, "object": …}` until the server ends the stream."""
        connection = self._connect()
        url = (
            _path(where, None, namespace)
            + "?"
            + urlencode({key: _query_text(value) for key, value in ({"watch": True} | query).items()})
        )
        with closing(connection):
            connection.request("GET", url, headers={"Authorization": f"Bearer {self.token}"})
            response = connection.getresponse()
            if response.status >= 400:
                raise ApiError("GET", url, Answer(response.status, _json_or_text(response.read())))
            for line in response:
                yield json.loads(line)

    def _exchange(
        self, method: str, url: str, data: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        # A list's append and pop are one step each, so threads may share the client.
        kept = bool(self._idle)
        connection = self._idle.pop() if kept else self._connect()
        try:
            connection.request(method, url, data, dict(headers))
            response = connection.getresponse()
            result = (
                response.status,
                {key.lower(): value for key, value in response.getheaders()},
                response.read(),
            )
        except (http.client.HTTPException, OSError) as error:
            connection.close()
            if not kept or not isinstance(error, ConnectionError):
                raise
            # The kept connection may have been closed while it was idle: once more on another.
            return self._exchange(method, url, data, headers)
        self._idle.append(connection)
        return result

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._address.hostname or "", self._address.port
        if self._tls is not None:
            return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=self._timeout)


def _path(
    where: str | Resource, name: str | None, namespace: str | None, subresource: str | None = None
) -> str:
    if isinstance(where, Resource):
        return path_of(where, name, namespace=namespace, subresource=subresource)
    return "/".join(part for part in (where, name, subresource) if part is not None)


def _query_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _json_or_text(raw: bytes) -> Object:
    try:
        body = json.loads(raw) if raw else {}
    except ValueError:
        # Health endpoints and some refusals answer in plain text.
        return {"message": raw.decode(errors="replace")}
    return body if isinstance(body, dict) else {"value": body}
