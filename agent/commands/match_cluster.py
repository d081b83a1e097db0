"""What `match` reads of a cluster: in pages, cut to the fields it needs, with progress when it takes long."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from agent.cluster import (
    ACCELERATOR_CLASSES,
    ACCELERATOR_NODES,
    BASE_MODELS,
    CLUSTER_BASE_MODELS,
    CLUSTER_SERVING_RUNTIMES,
    INFERENCE_SERVICES,
    NODES,
    PODS,
    SERVING_RUNTIMES,
    Cluster,
    Forbidden,
    NotFound,
    Object,
    Projection,
    Resource,
)
from agent.core.cluster_views import PodView, pod_view
from agent.core.matching.nodes import pod_requests
from agent.core.matching.verdicts import Finding

_QUIET_SECONDS = 1.0


class Progress:
    """Tells on standard error how far a read has come, once it takes longer than a second, and then each second."""

    def __init__(self, stderr: TextIO, monotonic: Callable[[], float]) -> None:
        self._stderr = stderr
        self._monotonic = monotonic
        self._told = monotonic()

    def counting(self, what: str, project: Projection) -> Projection:
        """Return a projection that counts the objects it is given."""
        count = 0

        def counted(obj: Object) -> Object:
            nonlocal count
            count += 1
            now = self._monotonic()
            if now - self._told >= _QUIET_SECONDS:
                self._told = now
                print(f"reading {what}: {count}", file=self._stderr, flush=True)
            return project(obj)

        return counted


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesRead:
    """Nodes, their records and what pods hold, as far as they may be read."""

    nodes: tuple[Object, ...]
    records: tuple[Object, ...]
    requested: Mapping[str, Mapping[str, int]] | None
    """`None` where pods may not be read."""
    findings: tuple[Finding, ...]


class ClusterReader:
    """Reads for one command; every other failure than a missing right or type is a `ClusterError`."""

    def __init__(self, cluster: Cluster, progress: Progress) -> None:
        self._cluster = cluster
        self._progress = progress

    def classes(self) -> list[Object]:
        """Return the AcceleratorClass objects; none where the type is not installed."""
        return self._listed(ACCELERATOR_CLASSES, _class)

    def runtimes(self, namespace: str | None = None) -> list[Object]:
        """Return the runtimes of a namespace, or of all, and the cluster's."""
        return [
            *self._listed(SERVING_RUNTIMES, _whole, namespace=namespace),
            *self._listed(CLUSTER_SERVING_RUNTIMES, _whole),
        ]

    def services(self, namespace: str | None = None) -> list[Object]:
        """Return the services of a namespace, or of all."""
        return self._listed(INFERENCE_SERVICES, _whole, namespace=namespace)

    def runtime(self, name: str, kind: str | None, namespace: str | None) -> Object | None:
        """Return a runtime by name: the namespaced one first, as OME looks."""
        return self._named(name, kind, namespace, SERVING_RUNTIMES, CLUSTER_SERVING_RUNTIMES)

    def model(self, name: str, kind: str | None, namespace: str | None) -> Object | None:
        """Return a model by name: the namespaced one first."""
        return self._named(name, kind, namespace, BASE_MODELS, CLUSTER_BASE_MODELS)

    def nodes(self) -> NodesRead:
        """Return all nodes, their records, and what pods request; a right that is missing becomes a finding."""
        findings: list[Finding] = []
        nodes = self._allowed(NODES, _node, "nodes", findings)
        records = self._allowed(ACCELERATOR_NODES, _record, "records of nodes", findings)
        pods = self._allowed(PODS, _pod, "pods", findings)
        requested = None
        if pods is not None:
            requested = pod_requests(
                PodView(node=pod["node"], requests=pod["requests"]) for pod in pods if "node" in pod
            )
        return NodesRead(
            nodes=tuple(nodes or ()),
            records=tuple(records or ()),
            requested=requested,
            findings=tuple(findings),
        )

    def _allowed(
        self, resource: Resource, project: Projection, what: str, findings: list[Finding]
    ) -> list[Object] | None:
        try:
            return self._listed(resource, project)
        except Forbidden as error:
            message = f"{what} may not be read ({error}); ask for the right to list {resource.plural}"
            findings.append(Finding(id="not-allowed", severity="warning", path="", message=message))
            return None

    def _listed(
        self, resource: Resource, project: Projection, *, namespace: str | None = None
    ) -> list[Object]:
        counted = self._progress.counting(resource.plural, project)
        try:
            objects, _ = self._cluster.list_all(resource, project=counted, namespace=namespace)
        except NotFound:
            # The type is not installed: there are none of it.
            return []
        return [{"apiVersion": resource.api_version, "kind": resource.kind, **obj} for obj in objects]

    def _named(
        self, name: str, kind: str | None, namespace: str | None, own: Resource, shared: Resource
    ) -> Object | None:
        places: Sequence[tuple[Resource, str | None]] = [(own, namespace or "default"), (shared, None)]
        for resource, where in places:
            if kind in (None, resource.kind):
                found = self._cluster.get(resource, name, namespace=where)
                if found is not None:
                    return {"apiVersion": resource.api_version, "kind": resource.kind, **found}
        return None


def _whole(obj: Object) -> Object:
    return {"metadata": _metadata(obj, "name", "namespace", "annotations"), "spec": obj.get("spec") or {}}


def _class(obj: Object) -> Object:
    status = obj.get("status") or {}
    totals = {key: status[key] for key in ("totalAccelerators", "availableAccelerators") if key in status}
    return _whole(obj) | ({"status": totals} if status else {})


def _node(obj: Object) -> Object:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    conditions = [one for one in status.get("conditions") or () if one.get("type") == "Ready"]
    return {
        "metadata": _metadata(obj, "name", "labels"),
        "spec": {key: spec[key] for key in ("taints", "unschedulable") if key in spec},
        "status": {
            "allocatable": _extended(status.get("allocatable")),
            "capacity": {
                key: value for key, value in (status.get("capacity") or {}).items() if key == "memory"
            },
            "conditions": [{"type": one["type"], "status": one["status"]} for one in conditions],
        },
    }


def _record(obj: Object) -> Object:
    return {"metadata": _metadata(obj, "name"), "spec": obj.get("spec") or {}}


def _pod(obj: Object) -> Object:
    """Return nothing of a pod that holds nothing: it is on no node, or finished."""
    view = pod_view(obj)
    return {} if view is None else {"node": view.node, "requests": view.requests}


def _extended(amounts: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: amount for name, amount in (amounts or {}).items() if "/" in name}


def _metadata(obj: Object, *keys: str) -> dict[str, Any]:
    metadata = obj.get("metadata") or {}
    return {key: metadata[key] for key in keys if key in metadata}
