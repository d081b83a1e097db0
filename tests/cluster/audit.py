"""Reads the API server's audit log: which requests were made, by whom, with what answer."""

import json
from dataclasses import dataclass
from pathlib import Path

POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: ["system:apiserver"]
- level: None
  nonResourceURLs: ["/readyz*", "/livez*", "/healthz*"]
- level: Metadata
"""

READS = frozenset({"get", "list", "watch"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedRequest:
    """One request as the server logged it."""

    user: str
    """`system:serviceaccount:<namespace>:<name>` or `admin`."""
    verb: str
    """In RBAC's words: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`."""
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    status: int
    uri: str
    user_agent: str
    stage: str
    """`ResponseComplete`; a watch is logged at `ResponseStarted` too."""
    time: str

    @property
    def is_write(self) -> bool:
        """Whether it could change something."""
        return self.verb not in READS

    @property
    def what(self) -> str:
        """The resource as RBAC names it, such as `acceleratorclasses/status`, empty for other URLs."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


class AuditLog:
    """The log of one API server, readable while it runs: the server writes a line before it answers."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def mark(self) -> int:
        """Return the present end, to read from later."""
        return self._path.stat().st_size if self._path.exists() else 0

    def since(
        self,
        mark: int = 0,
        *,
        user: str | None = None,
        resource: str | None = None,
        writes_only: bool = False,
    ) -> list[AuditedRequest]:
        """Return what was logged after `mark`; `user` is matched by its end (`accelerator-agent`)."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as log:
            log.seek(mark)
            lines = log.read().splitlines(keepends=True)
        requests = [_request(json.loads(line)) for line in lines if line.endswith(b"\n")]
        return [
            request
            for request in requests
            if (user is None or request.user.endswith(user))
            and (resource is None or request.resource == resource)
            and (request.is_write or not writes_only)
        ]


def _request(event: dict[str, object]) -> AuditedRequest:
    def part(parent: str, name: str) -> str:
        value = event.get(parent)
        return str(value.get(name, "")) if isinstance(value, dict) else ""

    return AuditedRequest(
        user=part("user", "username"),
        verb=str(event["verb"]),
        group=part("objectRef", "apiGroup"),
        resource=part("objectRef", "resource"),
        subresource=part("objectRef", "subresource"),
        namespace=part("objectRef", "namespace"),
        name=part("objectRef", "name"),
        status=int(part("responseStatus", "code") or 0),
        uri=str(event["requestURI"]),
        user_agent=str(event.get("userAgent", "")),
        stage=str(event["stage"]),
        time=str(event["requestReceivedTimestamp"]),
    )
