"""What a Pod's specification says about how its container is started and asked for its health."""

import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]

_VARIABLE = re.compile(r"\$\((\w+)\)")
_KEYED_FIELD = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


class ContainerConfigError(Exception):
    """The specification asks for what the stand-in does not know how to give."""


def environment_of(pod: Object, container: Object, *, ip: str) -> dict[str, str]:
    """Return the variables that the container's `env` gives, the downward API and `$(NAME)` resolved."""
    if container.get("envFrom"):
        raise ContainerConfigError("envFrom is not stood in for")
    found: dict[str, str] = {}
    for entry in container.get("env", []):
        source = entry.get("valueFrom")
        value = _expanded(entry.get("value", ""), found) if source is None else _field(pod, source, ip=ip)
        found[entry["name"]] = value
    return found


def command_of(container: Object, environment: Mapping[str, str]) -> list[str]:
    """Return the container's command and arguments."""
    if not container.get("command"):
        raise ContainerConfigError("there is no image here: the container must name its command")
    return [_expanded(word, environment) for word in (*container["command"], *container.get("args", []))]


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda found: environment.get(found[1], found[0]), text)


def _field(pod: Object, source: Object, *, ip: str) -> str:
    if set(source) != {"fieldRef"}:
        raise ContainerConfigError(f"{', '.join(source)} is not stood in for")
    path: str = source["fieldRef"]["fieldPath"]
    if keyed := _KEYED_FIELD.fullmatch(path):
        return str((pod["metadata"].get(keyed[1]) or {}).get(keyed[2], ""))
    known = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
        "metadata.uid": pod["metadata"]["uid"],
        "spec.nodeName": pod["spec"]["nodeName"],
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", "default"),
        "status.podIP": ip,
        "status.hostIP": "127.0.0.1",
    }
    if path not in known:
        raise ContainerConfigError(f"the field {path} is not stood in for")
    return str(known[path])


@dataclass(slots=True, kw_only=True)
class Probe:
    """One HTTP probe of a running container and how it went so far. Seconds, by the monotonic clock."""

    url: str
    period: float
    timeout: float
    failures_allowed: int
    due: float
    failures: int = 0
    succeeded: bool = False

    @property
    def failed(self) -> bool:
        """Whether it failed as often in a row as makes it count."""
        return self.failures >= self.failures_allowed

    def ask(self, now: float) -> None:
        """Ask when it is due."""
        if now < self.due:
            return
        self.due = now + self.period
        if _answers_well(self.url, self.timeout):
            self.succeeded, self.failures = True, 0
        else:
            self.failures += 1
            self.succeeded = self.succeeded and not self.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """The probes of one run of a container; `None` for one that the container does not name."""

    startup: Probe | None
    liveness: Probe | None
    readiness: Probe | None

    @property
    def started(self) -> bool:
        return self.startup is None or self.startup.succeeded

    @property
    def failed(self) -> bool:
        """Whether the container must be started again."""
        return any(probe is not None and probe.failed for probe in (self.startup, self.liveness))

    def ask(self, now: float) -> None:
        """Ask those that are due; until the start-up probe has succeeded it alone is asked."""
        asked = (self.liveness, self.readiness) if self.started else (self.startup,)
        for probe in asked:
            if probe is not None:
                probe.ask(now)


def probes_of(container: Object, *, ip: str, now: float, scale: float) -> Probes:
    """Return the container's probes before their first answer, their periods times `scale`."""
    startup, liveness, readiness = (
        _probe_of(container, kind, ip=ip, now=now, scale=scale)
        for kind in ("startupProbe", "livenessProbe", "readinessProbe")
    )
    return Probes(startup=startup, liveness=liveness, readiness=readiness)


def pod_status(*, ip: str, ready: bool) -> Object:
    """Return the status of a Pod whose container was started."""
    conditions = {"PodScheduled": True, "Initialized": True, "ContainersReady": ready, "Ready": ready}
    return {
        "phase": "Running",
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "hostIP": "127.0.0.1",
        "conditions": [{"type": kind, "status": str(holds)} for kind, holds in conditions.items()],
    }


def is_ready(pod: Object) -> bool:
    """Tell whether a Pod's condition Ready holds."""
    conditions = pod.get("status", {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _probe_of(container: Object, kind: str, *, ip: str, now: float, scale: float) -> Probe | None:
    body = container.get(kind)
    if body is None:
        return None
    if "httpGet" not in body:
        raise ContainerConfigError(f"a {kind} other than httpGet is not stood in for")
    port = body["httpGet"]["port"]
    ports = {entry.get("name"): entry["containerPort"] for entry in container.get("ports", [])}
    return Probe(
        url=f"http://{ip}:{ports.get(port, port)}{body['httpGet'].get('path', '/')}",
        period=body.get("periodSeconds", 10) * scale,
        timeout=body.get("timeoutSeconds", 1),
        failures_allowed=body.get("failureThreshold", 3),
        due=now + body.get("initialDelaySeconds", 0) * scale,
    )


def _answers_well(url: str, timeout: float) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=timeout) as response:
            return 200 <= int(response.status) < 400
    except urllib.error.HTTPError as error:
        error.close()
        return False
    except (urllib.error.URLError, OSError):  # not listening, or no answer in time
        return False
