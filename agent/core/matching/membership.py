"""Whether the hardware of a node is of a class: by class, PCI id, capability and model, never by size alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from agent.core.catalogue import GIB
from agent.core.keys import DEFAULT_DOMAIN
from agent.core.matching.hardware import MEASURED_SHARE, VENDOR_RESOURCES, ClassFacts, gib_text
from agent.core.matching.node_objects import DeviceKind, DeviceView
from agent.core.matching.nodes import NodeView
from agent.core.matching.placement import selector_checks
from agent.core.matching.spelling import normal, words
from agent.core.matching.verdicts import DOES_NOT_FIT
from agent.core.matching.versions import parse_version


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """What a node has of a class."""

    usable: int | None
    """Whole devices (or partitions of a partition's class) that work; `None` is not known."""
    total: int | None
    resource: str | None
    source: str
    devices: tuple[DeviceView, ...] = ()
    """Those of the class, where a record tells them."""


@dataclass(frozen=True, slots=True)
class Stranger:
    """A node that has other hardware, or none."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unsure:
    """A node whose hardware is not known well enough."""

    reason: str


Membership = Member | Stranger | Unsure


def membership(facts: ClassFacts, node: NodeView, *, domain: str = DEFAULT_DOMAIN) -> Membership:
    """Return what a node has of a class, or why it has nothing, or why that cannot be told."""
    for name in (facts.name, facts.adopts):
        offer = node.offers.get(name) if name else None
        if offer is not None:
            devices = tuple(device for device in node.devices or () if device.class_name == name)
            return Member(
                usable=offer.usable,
                total=offer.total,
                resource=offer.resource or facts.resource,
                source=node.source,
                devices=devices,
            )
    if facts.partition is not None:
        return Stranger(_of_other_kind(facts, node))
    if node.devices is not None:
        return _by_devices(facts, node)
    return _by_labels(facts, node, domain)


def _by_devices(facts: ClassFacts, node: NodeView) -> Membership:
    if not node.kinds:
        return Stranger("has no accelerator")
    answers = _kinds_answers(_identity(facts), node.kinds)
    if "" in answers:
        matching = {kind for kind, answer in zip(node.kinds, answers, strict=True) if answer == ""}
        devices = node.devices or ()
        whole = tuple(
            device for device in devices if device.kind in matching and device.mig.mode != "enabled"
        )
        return Member(
            usable=sum(device.usable for device in whole),
            total=len(whole),
            resource=facts.resource,
            source=f"AcceleratorNode/{node.name} spec.devices",
            devices=whole,
        )
    if None in answers:
        unsure = node.kinds[answers.index(None)]
        return Unsure(f"nothing tells whether {unsure.product or 'its device'} is of this class")
    return Stranger(next(answer for answer in answers if answer))


class _Identity(NamedTuple):
    """By what a class can be told."""

    vendor: str | None
    family: str | None
    model: str | None
    capability: str | None
    device_ids: tuple[str, ...]
    nominal_gib: Decimal | None


def _identity(facts: ClassFacts) -> _Identity:
    nominal = facts.memory.nominal_gib if facts.memory else None
    return _Identity(facts.vendor, facts.family, facts.model, facts.capability, facts.device_ids, nominal)


@lru_cache(maxsize=4096)
def _kinds_answers(of_class: _Identity, kinds: tuple[DeviceKind, ...]) -> tuple[str | None, ...]:
    """Return for each kind "" where it is of the class, why it is not, `None` where nothing identifies it."""
    return tuple(_kind_answer(of_class, kind) for kind in kinds)


def _kind_answer(of_class: _Identity, seen: DeviceKind) -> str | None:
    this = seen.product or "the device"
    if _differ(of_class.vendor, seen.vendor):
        return f"{this} is of {seen.vendor}, not {of_class.vendor}"
    by_id = bool(of_class.device_ids and seen.device_id)
    if by_id and (seen.device_id or "").lower() not in of_class.device_ids:
        return f"{this} has device id {seen.device_id}, not {' or '.join(of_class.device_ids)}"
    if _versions_differ(of_class.capability, seen.capability):
        return f"{this} has compute capability {seen.capability}, not {of_class.capability}"
    if _differ(of_class.family, seen.family):
        return f"{this} is of family {seen.family}, not {of_class.family}"
    by_model = bool(of_class.model and seen.product)
    if by_model and not by_id and not words(of_class.model or "") <= words(seen.product or ""):
        return f"{this} is no {of_class.model}"
    nominal = of_class.nominal_gib
    gib = None if seen.memory_bytes is None else Decimal(seen.memory_bytes) / GIB
    if nominal and gib and not nominal * MEASURED_SHARE <= gib <= nominal:
        return f"{this} has {gib_text(gib)}, not {gib_text(nominal)}"
    return "" if by_id or by_model else None


def _by_labels(facts: ClassFacts, node: NodeView, domain: str) -> Membership:
    labels = node.labels.values
    differing = [
        check.reason
        for check in selector_checks(facts.node_selector, node.labels, "the class")
        if check.verdict == DOES_NOT_FIT
    ]
    if differing:
        return Stranger(differing[0])
    if f"{domain}/present" not in labels and f"{domain}/count" not in labels:
        return _unlabelled(facts, node)
    kind = DeviceKind(
        vendor=labels.get(f"{domain}/vendor"),
        family=labels.get(f"{domain}/family"),
        product=labels.get(f"{domain}/product"),
        capability=labels.get(f"{domain}/compute-capability"),
        device_id=None,
        memory_bytes=_nominal_bytes(labels, domain),
    )
    (answer,) = _kinds_answers(_identity(facts), (kind,))
    if answer is None:
        return Unsure("its labels do not tell whether its devices are of this class")
    if answer:
        return Stranger(answer)
    count = labels.get(f"{domain}/count", "")
    return Member(
        usable=int(count) if count.isascii() and count.isdigit() else None,
        total=None,
        resource=facts.resource,
        source=f"Node/{node.name} {domain}/count",
    )


def _unlabelled(facts: ClassFacts, node: NodeView) -> Membership:
    """Answer for a node without our facts: an empty selector, which every node meets, makes no node a member."""
    offered = node.allocatable or {}
    if node.allocatable is not None and not any(name.startswith(_DOMAINS) for name in offered):
        return Stranger("offers no accelerator")
    if node.allocatable is not None and facts.resource is not None and facts.resource not in offered:
        return Stranger(f"offers no {facts.resource}")
    return Unsure("has no facts of this agent: no AcceleratorNode and no labels")


_DOMAINS = tuple(sorted({resource.partition("/")[0] + "/" for resource in VENDOR_RESOURCES.values()}))


def _of_other_kind(facts: ClassFacts, node: NodeView) -> str:
    held = ", ".join(sorted(node.offers))
    return f"has no partition {facts.partition}" + (f", but {held}" if held else "")


def _nominal_bytes(labels: Mapping[str, str], domain: str) -> int | None:
    text = labels.get(f"{domain}/memory-gib", "")
    return int(text) * GIB if text.isascii() and text.isdigit() else None


def _differ(one: str | None, other: str | None) -> bool:
    return bool(one and other) and normal(one or "") != normal(other or "")


def _versions_differ(one: str | None, other: str | None) -> bool:
    return bool(one and other) and parse_version(one or "") != parse_version(other or "")
