"""What is kept of an InferencePool, a Namespace and a Pod: small values, so that thousands of pods fit in memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from agent.core.cluster_views import pod_requests
from agent.core.ownership import other_owners, owned_paths
from agent.core.pools.arguments import Told, lora_arguments
from agent.core.pools.engines import EngineTable
from agent.core.pools.names import ACTIVE_PORTS, POOLS_MANAGER, PoolKeys

_FINISHED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """An `InferencePool`."""

    namespace: str
    name: str
    selector: Mapping[str, str]
    """Never empty in a pool that the API server took; an empty one selects nothing."""
    ports: tuple[int, ...]
    app_protocol: str | None = None
    picker: Mapping[str, Any] | None = None
    """`endpointPickerRef` as it stands in the pool."""

    @property
    def key(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class OptIn:
    """What a namespace allows: to ask its pools' pods, and to write labels on them."""

    ask: bool = False
    write: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPod:
    """A Pod that runs on a Node, as far as a pool's report needs it."""

    namespace: str
    name: str
    uid: str
    node: str
    address: str | None
    running: bool
    ready: bool
    labels: Mapping[str, str]
    lora: str | None = None
    """What the annotation says, whoever wrote it."""
    ours: frozenset[str] = frozenset()
    """Labels and annotations that our manager owns alone."""
    active_ports: frozenset[int] | None = None
    """The ports that serve; `None` where no annotation narrows them."""
    requests: Mapping[str, int] = field(default_factory=dict)
    claims: bool = False
    """Whether it asks for devices by claims (DRA), which name no extended resource."""
    told: tuple[Told, ...] = ()
    workload: tuple[str, str] | None = None
    """Kind and name of what makes the pod from a template."""

    @property
    def key(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"


def pool_view(pool: Mapping[str, Any]) -> PoolView:
    """Return what counts of an InferencePool."""
    metadata, spec = pool["metadata"], pool.get("spec") or {}
    return PoolView(
        namespace=metadata["namespace"],
        name=metadata["name"],
        selector=dict((spec.get("selector") or {}).get("matchLabels") or {}),
        ports=tuple(entry["number"] for entry in spec.get("targetPorts") or ()),
        app_protocol=spec.get("appProtocol"),
        picker=spec.get("endpointPickerRef"),
    )


def opt_in_view(namespace: Mapping[str, Any], *, keys: PoolKeys) -> OptIn | None:
    """Return what a namespace allows, `None` where it did not opt in."""
    value = (namespace["metadata"].get("labels") or {}).get(keys.opt_in)
    return {
        "true": OptIn(ask=True, write=True),
        "observe": OptIn(ask=True),
        "labels": OptIn(write=True),
    }.get(value or "")


def pool_pod_view(pod: Mapping[str, Any], *, keys: PoolKeys, table: EngineTable) -> PoolPod | None:
    """Return what counts of a Pod; `None` for one that is on no Node, has finished, or is being deleted."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in _FINISHED or "deletionTimestamp" in metadata:
        return None
    labels = {_shared(key): _shared(value) for key, value in (metadata.get("labels") or {}).items()}
    annotations = metadata.get("annotations") or {}
    conditions = status.get("conditions") or ()
    return PoolPod(
        namespace=_shared(metadata["namespace"]),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        node=_shared(spec["nodeName"]),
        address=status.get("podIP"),
        running=status.get("phase") == "Running",
        ready=any(one["type"] == "Ready" and one["status"] == "True" for one in conditions),
        labels=labels,
        lora=annotations.get(keys.lora),
        ours=_ours(pod),
        active_ports=_active_ports(annotations),
        requests=pod_requests(spec),
        claims=bool(spec.get("resourceClaims")),
        told=lora_arguments(spec, table),
        workload=_workload(metadata, labels),
    )


def _ours(pod: Mapping[str, Any]) -> frozenset[str]:
    obj = dict(pod)
    return frozenset(
        path[-1]
        for path in owned_paths(obj, POOLS_MANAGER)
        if path[:-1] in {("metadata", "labels"), ("metadata", "annotations")}
        and not other_owners(obj, path, POOLS_MANAGER)
    )


def _active_ports(annotations: Mapping[str, str]) -> frozenset[int] | None:
    for key in ACTIVE_PORTS:
        if key in annotations:
            parts = (part.strip() for part in annotations[key].split(","))
            return frozenset(int(part) for part in parts if part.isascii() and part.isdecimal())
    return None


def _workload(metadata: Mapping[str, Any], labels: Mapping[str, str]) -> tuple[str, str] | None:
    owner = next((one for one in metadata.get("ownerReferences") or () if one.get("controller")), None)
    if owner is None:
        return None
    kind, name = owner["kind"], owner["name"]
    ending = "-" + labels.get("pod-template-hash", "")
    if kind == "ReplicaSet" and len(ending) > 1 and name.endswith(ending):
        kind, name = "Deployment", name.removesuffix(ending)
    return _shared(kind), _shared(name)


@lru_cache(maxsize=1 << 16)
def _shared(text: str) -> str:
    """Return one object for equal text: thousands of pods have the same labels and nodes."""
    return text
