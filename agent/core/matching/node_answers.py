"""One class on one node: what is usable, what is free, whether a pod may land there, each shortfall with its reason."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from agent.core.keys import DEFAULT_DOMAIN
from agent.core.matching.counts import Need
from agent.core.matching.fields import Fields
from agent.core.matching.hardware import ClassFacts
from agent.core.matching.membership import Member, Stranger, Unsure, membership
from agent.core.matching.node_objects import DeviceView
from agent.core.matching.nodes import NodeView, sick_devices
from agent.core.matching.placement import Check, affinity_checks, selector_checks, taint_checks
from agent.core.matching.spelling import with_general
from agent.core.matching.verdicts import CANNOT_TELL, DOES_NOT_FIT, FITS, Verdict, all_of
from agent.core.matching.workload import Placement, required_terms


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeScope:
    """What node answers need beside class, node and number."""

    placement: Placement = field(default_factory=Placement)
    nvlink_required: bool = False
    allow_sharing: bool = False
    """Whether time slices count as devices."""
    now: datetime | None = None
    """Set where records are live, so that their age counts."""
    stale_after: timedelta = timedelta(minutes=40)
    domain: str = DEFAULT_DOMAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnswer:
    """What one node says of one class."""

    name: str
    class_name: str
    verdict: Verdict
    """Whether a pod fits now."""
    when_free: Verdict
    """Whether it would fit were nothing else on the node."""
    free: int | None
    usable: int | None
    reasons: tuple[str, ...] = ()
    simulated: bool = False
    fabric: str | None = None
    """NVLink domain of all devices of the class, where a group spans nodes; `None` for none, or several."""


def node_answer(facts: ClassFacts, node: NodeView, need: Need, scope: NodeScope) -> NodeAnswer | Stranger:
    """Return how the class stands on the node, or why the node has none of it."""
    found = membership(facts, node, domain=scope.domain)
    if isinstance(found, Stranger):
        return found
    if isinstance(found, Unsure):
        return _unsure(facts, node, found)
    room = _room(found, node, scope)
    barriers = list(_barriers(facts, node, scope))
    links = list(_link_checks(facts, found.devices, need, scope))
    hard = all_of(check.verdict for check in (*barriers, *links))
    when_free = all_of((hard, _enough(room.usable, need.per_pod)))
    now = all_of((when_free, _enough(room.free, need.per_pod)))
    reasons = [check.reason for check in (*barriers, *links)]
    return NodeAnswer(
        name=node.name,
        class_name=facts.name,
        verdict=now,
        when_free=when_free,
        free=room.free,
        usable=room.usable,
        reasons=tuple(reasons + _count_reasons(room, need, found)),
        simulated=node.simulated,
        fabric=_fabric(found.devices, node, scope) if need.tensor_parallel > need.per_pod else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    usable: int | None
    free: int | None
    notes: tuple[str, ...] = ()


def _unsure(facts: ClassFacts, node: NodeView, why: Unsure) -> NodeAnswer:
    return NodeAnswer(
        name=node.name,
        class_name=facts.name,
        verdict=CANNOT_TELL,
        when_free=CANNOT_TELL,
        free=None,
        usable=None,
        reasons=(why.reason,),
        simulated=node.simulated,
    )


def _room(member: Member, node: NodeView, scope: NodeScope) -> _Room:
    """Compare what the facts count with what the kubelet offers; the smaller of the two is what there is."""
    if node.allocatable is None or member.usable is None:
        return _Room(usable=member.usable, free=None)
    resource = member.resource
    offered = node.allocatable.get(resource) if resource else None
    if offered is None:
        note = f"{member.source} counts {member.usable}, but the kubelet offers no {resource}"
        return _Room(usable=None, free=None, notes=(note,))
    behind, total = _behind(resource, member, node)
    usable = min(member.usable, offered)
    notes: tuple[str, ...] = ()
    if offered > total:
        notes = (f"{offered} {resource} are offered for {total} physical: time slices are not devices",)
        if scope.allow_sharing:
            usable = offered - behind + member.usable
            notes = (f"{offered} {resource} are offered for {total} physical, and sharing is allowed",)
    elif offered != behind:
        notes = (f"{member.source} counts {behind} usable, the kubelet offers {offered} {resource}",)
    # Where classes share a resource name, every request may have fallen on this one.
    held = (node.requested or {}).get(resource or "", 0)
    return _Room(usable=usable, free=max(0, usable - held), notes=notes)


def _behind(resource: str | None, member: Member, node: NodeView) -> tuple[int, int]:
    """Return the usable and all devices of all classes that the node offers under one resource name."""
    shared = [offer for offer in node.offers.values() if offer.resource == resource]
    usable = max(sum(offer.usable or 0 for offer in shared), member.usable or 0)
    total = max(sum(offer.total or offer.usable or 0 for offer in shared), member.total or 0)
    return usable, max(usable, total)


def _enough(count: int | None, needed: int) -> Verdict:
    if count is None:
        return CANNOT_TELL
    return FITS if count >= needed else DOES_NOT_FIT


def _count_reasons(room: _Room, need: Need, member: Member) -> list[str]:
    """Return the shortfall, then the devices that do not work, then where facts and kubelet disagree."""
    reasons = []
    total = "" if member.total is None else f" of {member.total}"
    if room.usable is None:
        if not room.notes:
            reasons.append("how many are usable is not known")
    elif room.usable < need.per_pod:
        reasons.append(f"needs {need.per_pod} whole, has {room.usable} usable{total}")
    elif room.free is None:
        reasons.append("what is free is not known without the Node object")
    elif room.free < need.per_pod:
        reasons.append(f"needs {need.per_pod}, has {room.free} free of {room.usable}; fits when free")
    return [*reasons, *sick_devices(member.devices), *room.notes]


def _barriers(facts: ClassFacts, node: NodeView, scope: NodeScope) -> Iterator[Check]:
    """Return what keeps a pod of this class off the node, whatever is free."""
    if node.unschedulable:
        yield Check(DOES_NOT_FIT, "is cordoned")
    if node.ready is False:
        yield Check(DOES_NOT_FIT, "is not Ready")
    yield from _age(node, scope)
    yield from selector_checks(facts.node_selector, node.labels, f"class {facts.name}")
    if facts.affinity:
        terms = required_terms(Fields(facts.affinity, "spec.discovery.affinity"))
        yield from affinity_checks(terms, node.labels, node.name, f"affinity of class {facts.name}")
    placement = scope.placement
    yield from selector_checks(placement.node_selector, node.labels, placement.path)
    yield from affinity_checks(placement.terms, node.labels, node.name, placement.path)
    yield from taint_checks(node.taints, placement.tolerations)


def _age(node: NodeView, scope: NodeScope) -> Iterator[Check]:
    if scope.now is None or node.observed_at is None:
        return
    age = scope.now - node.observed_at
    if age > scope.stale_after:
        minutes = int(age.total_seconds() // 60)
        yield Check(CANNOT_TELL, f"its record was last confirmed {minutes} minutes ago")


def _link_checks(
    facts: ClassFacts, devices: Sequence[DeviceView], need: Need, scope: NodeScope
) -> Iterator[Check]:
    """Hold a tensor-parallel group to one NVLink domain, where NVLink is required and a record tells of links."""
    if not scope.nvlink_required or need.tensor_parallel < 2 or not devices:
        return
    without = facts.features is not None and "nvlink" not in with_general(facts.features)
    domains: dict[str, int] = {}
    for device in devices:
        if device.usable and _linked(device, without=without):
            domains[_domain(device)] = domains.get(_domain(device), 0) + 1
    largest = max(domains.values(), default=0)
    # A group that spans pods is compared over nodes.
    group = min(need.tensor_parallel, need.per_pod)
    if largest < group:
        sharing = "1 device is in" if largest == 1 else f"{largest} devices share"
        yield Check(DOES_NOT_FIT, f"{sharing} an NVLink domain that is up, {group} are needed")


def _linked(device: DeviceView, *, without: bool) -> bool:
    """Tell whether links may be up; a record without a count leaves that open, save for a class without NVLink."""
    if without and not device.link.nvlink_active:
        return False
    fabric = device.fabric
    if fabric is not None and fabric.state in {"not-started", "in-progress"}:
        return False
    if fabric is not None and fabric.state == "completed" and fabric.status not in {None, 0}:
        return False
    return device.link.nvlink_active != 0


def _domain(device: DeviceView) -> str:
    """Return the domain's name; the devices of a node without a fabric cluster are one domain."""
    fabric = device.fabric
    return f"{fabric.cluster_uuid}.{fabric.clique}" if fabric is not None and fabric.cluster_uuid else ""


def _fabric(devices: Sequence[DeviceView], node: NodeView, scope: NodeScope) -> str | None:
    names = {_domain(device) for device in devices if device.usable}
    recorded = (names.pop() or None) if len(names) == 1 else None
    return recorded or node.labels.values.get(f"{scope.domain}/fabric")
