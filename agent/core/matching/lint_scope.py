"""What lint knows beside the object it looks at."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.core.keys import DEFAULT_DOMAIN
from agent.core.matching.nodes import NodeView
from agent.core.matching.verdicts import Finding

RuntimeKey = tuple[str, str | None, str]
"""Kind, namespace and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintScope:
    """Classes, runtimes and nodes around an object."""

    classes: Mapping[str, Mapping[str, Any]] | None = None
    """All that exist, by name; `None` where that is not known."""
    runtimes: Mapping[RuntimeKey, Mapping[str, Any]] = field(default_factory=dict)
    nodes: tuple[NodeView, ...] = ()
    domain: str = DEFAULT_DOMAIN

    def known(self, names: list[str]) -> list[Mapping[str, Any]]:
        """Return the objects of those of `names` that exist."""
        classes = self.classes or {}
        return [classes[name] for name in names if name in classes]

    def runtime_of(self, service: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the runtime that a service names: the namespaced one first, as OME looks."""
        return runtime_named_by(service, self.runtimes)


def runtime_named_by(
    service: Mapping[str, Any], runtimes: Mapping[RuntimeKey, Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """Return the runtime of `spec.runtime`: one of the service's namespace, else the cluster's; `None` for neither."""
    spec = service.get("spec")
    reference = spec.get("runtime") if isinstance(spec, Mapping) else None
    if not isinstance(reference, Mapping) or not isinstance(reference.get("name"), str):
        return None
    name, kind = reference["name"], reference.get("kind")
    namespace = (service.get("metadata") or {}).get("namespace")
    keys: list[RuntimeKey] = []
    if kind != "ClusterServingRuntime":
        keys.append(("ServingRuntime", namespace, name))
    if kind != "ServingRuntime":
        keys.append(("ClusterServingRuntime", None, name))
    return next((runtimes[key] for key in keys if key in runtimes), None)


def error(id_: str, path: str, message: str) -> Finding:
    """Return a finding that breaks what the author wants."""
    return Finding(id=id_, severity="error", path=path, message=message)


def warning(id_: str, path: str, message: str) -> Finding:
    """Return a finding that does something else than it seems to."""
    return Finding(id=id_, severity="warning", path=path, message=message)


def info(id_: str, path: str, message: str) -> Finding:
    """Return a finding that is good to know and needs no change."""
    return Finding(id=id_, severity="info", path=path, message=message)
