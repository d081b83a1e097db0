"""What the controller keeps of a Node, a Pod and a record: small values, so that thousands of them fit in memory.

Pure. A view that equals the one before tells that nothing of interest changed.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from agent.core.classes import ClassContent, content_of
from agent.core.quantity import InvalidQuantityError, whole_value
from agent.core.recorded import accelerator_of, node_uid_of, state_of

# What tells devices apart, or how they are: not a fact about the product that a class could state.
_OF_ONE_DEVICE = frozenset(
    {"id", "uuidWeak", "index", "state", "reasons", "since", "fault", "problems", "class"}
)
_OF_ONE_SLOT = frozenset({"address", "numaNode"})
_FINISHED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A Node, as far as it decides what is available."""

    name: str
    uid: str
    ready: bool
    schedulable: bool
    allocatable: Mapping[str, int] = field(default_factory=dict)
    """Extended resources alone. One that no device plugin offers is absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """What an unfinished Pod on a Node takes of its extended resources."""

    node: str
    requests: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubledDevice:
    """A device that is in another state than ok."""

    id: str
    product: str
    state: str
    reasons: tuple[str, ...]
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedClass:
    """What a record counts of one class, and what its devices say of themselves."""

    name: str
    resource: str
    total: int
    usable: int
    contents: tuple[ClassContent, ...]
    """Distinct; empty when no device of the class told what it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordView:
    """An `AcceleratorNode`."""

    name: str
    owner_uid: str | None
    """Of the Node that it was written for."""
    observed_at: float | None
    """Seconds since the epoch by the agent's clock; in the controller by its own monotonic clock, see `ages`."""
    simulated: bool
    driver: str | None
    classes: tuple[RecordedClass, ...]
    troubled: tuple[TroubledDevice, ...]
    problem: str | None = None
    """Why the record could not be understood; nothing else of it counts then."""

    def observed(self, at: float) -> "RecordView":
        """Return the same view, observed at another time."""
        return replace(self, observed_at=at)


def node_view(node: Mapping[str, Any]) -> NodeView:
    """Return what counts of a Node."""
    status = node.get("status") or {}
    conditions = {entry["type"]: entry["status"] for entry in status.get("conditions") or ()}
    return NodeView(
        name=node["metadata"]["name"],
        uid=node["metadata"].get("uid", ""),
        ready=conditions.get("Ready") == "True",
        schedulable=not (node.get("spec") or {}).get("unschedulable", False),
        allocatable=_extended(status.get("allocatable")),
    )


def pod_view(pod: Mapping[str, Any]) -> PodView | None:
    """Return what a Pod takes of its Node, `None` for one that takes nothing."""
    spec = pod.get("spec") or {}
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in _FINISHED:
        return None
    requests = pod_requests(spec)
    return PodView(node=spec["nodeName"], requests=requests) if requests else None


def pod_requests(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return the extended resources that a Pod asks for, by the scheduler's rule.

    The larger of what all containers need together, sidecars included, and what each init container needs beside the
    sidecars that were started before it; and the overhead.
    """
    running = _sum(_requests(container) for container in spec.get("containers") or ())
    sidecars: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        needed = _sum((_requests(container), sidecars))
        starting = {name: max(starting.get(name, 0), needed.get(name, 0)) for name in starting | needed}
        if container.get("restartPolicy") == "Always":
            sidecars = needed
    running = _sum((running, sidecars))
    largest = {name: max(running.get(name, 0), starting.get(name, 0)) for name in running | starting}
    total = _sum((largest, _extended(spec.get("overhead"))))
    return {name: count for name, count in total.items() if count}


def record_view(record: Mapping[str, Any], *, domain: str) -> RecordView:
    """Return what counts of a record; one of a shape that is not ours becomes a view with a `problem`."""
    metadata = record["metadata"]
    owner_uid = node_uid_of(record)
    try:
        return _record_view(record, owner_uid, domain)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return RecordView(
            name=metadata["name"],
            owner_uid=owner_uid,
            observed_at=None,
            simulated=False,
            driver=None,
            classes=(),
            troubled=(),
            problem=f"{type(error).__name__}: {error}",
        )


def _record_view(record: Mapping[str, Any], owner_uid: str | None, domain: str) -> RecordView:
    spec = record.get("spec") or {}
    devices = spec.get("devices") or ()
    contents = _contents_by_class(devices, domain)
    classes = tuple(
        RecordedClass(
            name=entry["name"],
            resource=entry.get("resource", ""),
            total=int(entry["total"]),
            usable=int(entry["usable"]),
            contents=contents.get(entry["name"], ()),
        )
        for entry in spec.get("classes") or ()
    )
    observed = spec.get("observedAt")
    return RecordView(
        name=record["metadata"]["name"],
        owner_uid=owner_uid,
        observed_at=datetime.fromisoformat(observed).timestamp() if observed else None,
        simulated=spec.get("simulated", False),
        driver=(spec.get("driver") or {}).get("version"),
        classes=classes,
        troubled=tuple(_troubled(device) for device in devices if device.get("state") != "ok"),
    )


def _troubled(device: Mapping[str, Any]) -> TroubledDevice:
    return TroubledDevice(
        id=device.get("id", ""),
        product=device.get("product", "an accelerator"),
        state=state_of(device),
        reasons=tuple(device.get("reasons") or ()),
        since=device.get("since", ""),
    )


def _contents_by_class(
    devices: Iterable[Mapping[str, Any]], domain: str
) -> dict[str, tuple[ClassContent, ...]]:
    found: dict[str, dict[int, ClassContent]] = {}
    for device in devices:
        facts = {key: value for key, value in device.items() if key not in _OF_ONE_DEVICE}
        if "pci" in facts:
            facts["pci"] = {"address": ""} | {k: v for k, v in facts["pci"].items() if k not in _OF_ONE_SLOT}
        if "fault" in device:
            # That it failed makes what it says hearsay; how it failed is its own matter.
            facts["fault"] = {"kind": device["fault"]["kind"]}
        cut = (facts.get("mig") or {}).get("mode") == "enabled"
        for name, instance in _memberships(device, cut=cut):
            text = json.dumps([facts, instance])
            content = _content(text, name, domain)
            if content is not None:
                found.setdefault(name, {})[id(content)] = content
    return {name: tuple(contents.values()) for name, contents in found.items()}


def _memberships(device: Mapping[str, Any], *, cut: bool) -> Iterable[tuple[str, int | None]]:
    """Yield each class that the device counts for, with the position of the partition that makes it so."""
    if not cut:
        return [(device["class"], None)] if "class" in device else []
    instances = device["mig"].get("instances") or ()
    return [(entry["class"], position) for position, entry in enumerate(instances) if "class" in entry]


@lru_cache(maxsize=4096)
def _content(facts: str, name: str, domain: str) -> ClassContent | None:
    """Return the content for a device's facts; thousands of equal devices share one value."""
    device, position = json.loads(facts)
    accelerator = accelerator_of(device)
    if position is None:
        content = content_of(accelerator, domain=domain)
    else:
        partitions = (accelerator.mig.partitions if accelerator.mig else None) or ()
        content = content_of(accelerator, partition=partitions[position], domain=domain)
    # The record names the class as its Node's label does; names of the operator's choice are in it already.
    return None if content is None else replace(content, name=name)


def _requests(container: Mapping[str, Any]) -> dict[str, int]:
    resources = container.get("resources") or {}
    # The API server copies limits that have no request; a Pod that was never admitted may lack the copy.
    return _extended({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _extended(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    found = {}
    for name, value in (quantities or {}).items():
        if "/" in name:
            try:
                found[name] = whole_value(value)
            except InvalidQuantityError:
                continue  # the API server accepts none of these
    return found


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            total[name] = total.get(name, 0) + count
    return total
