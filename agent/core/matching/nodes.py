"""`Node` and `AcceleratorNode` objects, and the requests of pods → one view per node."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from agent.core.cluster_views import PodView
from agent.core.keys import DEFAULT_DOMAIN
from agent.core.matching.fields import Fields
from agent.core.matching.node_objects import (
    USABLE_STATES,
    DeviceKind,
    DeviceView,
    Node,
    Offer,
    Record,
    RecordSpec,
)
from agent.core.matching.placement import Labels, Taint
from agent.core.matching.verdicts import Problem
from agent.core.quantity import InvalidQuantityError, whole_value


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One node, from its Node object, its record, or both."""

    name: str
    labels: Labels
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool | None = None
    """`None` where no condition tells."""
    allocatable: Mapping[str, int] | None = None
    """What the kubelet offers, by extended resource; `None` without a Node object."""
    requested: Mapping[str, int] | None = None
    """What pods hold of it; `None` where pods were not read."""
    memory_bytes: int | None = None
    devices: tuple[DeviceView, ...] | None = None
    """`None` without a record."""
    kinds: tuple[DeviceKind, ...] = ()
    """The distinct kinds of `devices`."""
    offers: Mapping[str, Offer] = field(default_factory=dict)
    """Of each class, by the record, else by the count labels."""
    source: str = ""
    """Where the offers stand."""
    observed_at: datetime | None = None
    simulated: bool = False


def node_views(
    nodes: Iterable[Mapping[str, Any]],
    records: Iterable[Mapping[str, Any]],
    *,
    requested: Mapping[str, Mapping[str, int]] | None = None,
    domain: str = DEFAULT_DOMAIN,
) -> tuple[tuple[NodeView, ...], tuple[Problem, ...]]:
    """Return a view per node, by name, and what of the objects could not be read (such an object counts as absent).

    `requested` maps a node's name to what its pods request (`pod_requests`); `None` where pods were not read.
    """
    problems: list[Problem] = []
    by_name: dict[str, Node] = {
        node.metadata.name: node for node in _converted(nodes, Node, "Node", problems)
    }
    recorded: dict[str, Record] = {
        one.metadata.name: one for one in _converted(records, Record, "AcceleratorNode", problems)
    }
    held = None if requested is None else {name: requested.get(name, {}) for name in by_name}
    views = tuple(
        _view(name, by_name.get(name), recorded.get(name), None if held is None else held.get(name), domain)
        for name in sorted(by_name.keys() | recorded.keys())
    )
    return views, tuple(problems)


def object_problems(obj: Mapping[str, Any]) -> tuple[Problem, ...]:
    """Return what is wrong with the kinds of values in a Node or AcceleratorNode."""
    problems: list[Problem] = []
    if obj.get("kind") == "Node":
        for node in _converted([obj], Node, "Node", problems):
            problems += _quantity_problems(node)
    else:
        _converted([obj], Record, "AcceleratorNode", problems)
    return tuple(Problem(path=one.path.rpartition(" ")[2], message=one.message) for one in problems)


def _quantity_problems(node: Node) -> list[Problem]:
    found = []
    for name, raw in node.status.allocatable.items():
        try:
            whole_value(raw)
        except InvalidQuantityError as error:
            found.append(Problem(path=f"status.allocatable[{name}]", message=str(error)))
    return found


def pod_requests(pods: Iterable[PodView]) -> dict[str, dict[str, int]]:
    """Return by node what its unfinished pods request of extended resources."""
    held: dict[str, dict[str, int]] = {}
    for pod in pods:
        of_node = held.setdefault(pod.node, {})
        for resource, count in pod.requests.items():
            of_node[resource] = of_node.get(resource, 0) + count
    return held


# A fleet has few distinct amounts.
@lru_cache(maxsize=4096)
def _whole(raw: str | int | None) -> int | None:
    try:
        return whole_value(raw)
    except InvalidQuantityError:
        # A server sends none; a file's is refused where it is read.
        return None


_Object = TypeVar("_Object", Node, Record)


def _converted(
    objects: Iterable[Mapping[str, Any]], shape: type[_Object], kind: str, problems: list[Problem]
) -> list[_Object]:
    found = []
    for obj in objects:
        try:
            found.append(msgspec.convert(obj, shape))
        except msgspec.ValidationError as error:
            message, _, path = str(error).partition(" - at `$.")
            name = Fields(obj, "").inside("metadata").value.get("name")
            problems.append(Problem(path=f"{kind}/{name} {path.rstrip('`')}", message=message))
    return found


def _view(
    name: str,
    node: Node | None,
    record: Record | None,
    requested: Mapping[str, int] | None,
    domain: str,
) -> NodeView:
    spec = record.spec if record else RecordSpec()
    labels = Labels(node.metadata.labels) if node else Labels(_derived_labels(spec, domain), complete=False)
    counted = {offer.name: offer for offer in spec.classes} if record else _offers_of(labels.values, domain)
    conditions = node.status.conditions if node else ()
    return NodeView(
        name=name,
        labels=labels,
        taints=tuple(Taint(t.key, t.value, t.effect) for t in node.spec.taints) if node else (),
        unschedulable=node.spec.unschedulable if node else False,
        ready=next((one.status == "True" for one in conditions if one.type == "Ready"), None),
        allocatable=_allocatable(node.status.allocatable) if node else None,
        requested=requested,
        memory_bytes=_whole(node.status.capacity.get("memory")) if node else spec.host.memory_bytes,
        devices=spec.devices if record else None,
        kinds=tuple(dict.fromkeys(device.kind for device in spec.devices)),
        offers=counted,
        source=f"AcceleratorNode/{name} spec.classes" if record else f"Node/{name} metadata.labels",
        observed_at=_time(spec.observed_at),
        simulated=spec.simulated or labels.values.get(f"{domain}/simulated") == "true",
    )


def _allocatable(amounts: Mapping[str, str | int]) -> dict[str, int]:
    return {
        name: count for name, raw in amounts.items() if "/" in name and (count := _whole(raw)) is not None
    }


def _offers_of(labels: Mapping[str, str], domain: str) -> dict[str, Offer]:
    """Return the counts that labels tell."""
    prefix = f"count.{domain}/"
    return {
        key.removeprefix(prefix): Offer(name=key.removeprefix(prefix), usable=int(value))
        for key, value in labels.items()
        if key.startswith(prefix) and value.isascii() and value.isdigit()
    }


def _derived_labels(spec: RecordSpec, domain: str) -> dict[str, str]:
    """Return the labels that the agent puts on a node with this record, for a record that came without its Node."""
    by_resource: dict[str | None, int] = {}
    for offer in spec.classes:
        by_resource[offer.resource] = by_resource.get(offer.resource, 0) + 1
    labels = {
        f"class.{domain}/{offer.name}": "true"
        for offer in spec.classes
        if offer.usable and by_resource[offer.resource] == 1
    }
    for name, version in (("driver", spec.driver.version), ("cuda", spec.driver.cuda_version)):
        if version:
            labels[f"{domain}/{name}-version"] = version
            labels[f"{domain}/{name}-major"] = version.partition(".")[0]
    return labels


def _time(text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        # Not written by the agent: a record of unknown age.
        return None
    return moment if moment is None or moment.tzinfo is not None else None


def sick_devices(devices: Sequence[DeviceView]) -> tuple[str, ...]:
    """Return the devices that no workload is promised, each with its state and why."""
    return tuple(
        f"{device.id or f'device {device.index}'} is {device.state}"
        + (f" ({', '.join(device.reasons)})" if device.reasons else "")
        for device in devices
        if device.state not in USABLE_STATES
    )
