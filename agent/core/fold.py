"""Records, Nodes and Pods → what is true of each class: the fold.

Pure. A node's `Share` of a class is made from its record, its Node and what its Pods request; a class is the sum of its
shares. So when one node changes, its shares and the classes that they touch are all there is to compute.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from agent.core.classes import ClassContent, merge_contents
from agent.core.cluster_views import NodeView, PodView, RecordView


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one node adds to one class."""

    class_name: str
    node: str
    resource: str
    total: int
    usable: int
    contents: tuple[ClassContent, ...]
    simulated: bool
    driver: str | None
    observed_at: float | None
    ready: bool
    schedulable: bool
    allocatable: int | None
    """Of the class's resource; `None` where the Node offers none of that name (no device plugin, DRA, renamed)."""
    requested: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """One fact on which nodes of a class differ."""

    field: str
    values: tuple[tuple[str, tuple[str, ...]], ...]
    """(value, nodes that say so) in the order of the values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassState:
    """One class as the whole cluster shows it. Node names are sorted."""

    name: str
    content: ClassContent | None
    """`None` when no node tells what the class is: it is retired."""
    nodes: tuple[str, ...] = ()
    total: int = 0
    usable: int = 0
    allocated: int = 0
    """Requested by Pods on the nodes whose availability is known."""
    available: int | None = 0
    """`None`: on no Ready, schedulable node is it known."""
    available_nodes: tuple[str, ...] = ()
    """Ready and schedulable, with a usable device."""
    unusable: tuple[tuple[str, int, int], ...] = ()
    """(node, unusable devices, all devices) of the nodes that have an unusable one."""
    not_ready: tuple[str, ...] = ()
    cordoned: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    """Ready nodes that offer none of the class's resource."""
    resources: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    disagreements: tuple[Disagreement, ...] = ()
    simulated: bool = False
    left_out: tuple[str, ...] = ()
    """Simulated nodes that do not count beside real ones."""
    pods_known: bool = True


def shares_of(record: RecordView, node: NodeView | None, requested: Mapping[str, int]) -> tuple[Share, ...]:
    """Return what a node adds to its classes: nothing when its Node is gone or is another than the record's."""
    if node is None or record.problem is not None:
        return ()
    if record.owner_uid is not None and record.owner_uid != node.uid:
        return ()
    return tuple(
        Share(
            class_name=part.name,
            node=record.name,
            resource=part.resource,
            total=part.total,
            usable=part.usable,
            contents=part.contents,
            simulated=record.simulated,
            driver=record.driver,
            observed_at=record.observed_at,
            ready=node.ready,
            schedulable=node.schedulable,
            allocatable=node.allocatable.get(part.resource),
            requested=requested.get(part.resource, 0),
        )
        for part in record.classes
    )


def class_state(
    name: str, shares: Iterable[Share], *, stale_before: float, pods_known: bool = True
) -> ClassState:
    """Return the class that these shares make; records from before `stale_before` (epoch) are stale."""
    everyone = sorted(shares, key=lambda share: share.node)
    real = [share for share in everyone if not share.simulated]
    counted = real or everyone
    if not counted:
        return ClassState(name=name, content=None, pods_known=pods_known)
    stale = frozenset(s.node for s in counted if s.observed_at is None or s.observed_at < stale_before)
    open_shares = [s for s in counted if s.ready and s.schedulable and s.node not in stale]
    known = [s for s in open_shares if s.allocatable is not None]
    contents = _distinct(counted)
    return ClassState(
        name=name,
        content=merge_contents(contents) if contents else None,
        nodes=tuple(s.node for s in counted),
        total=sum(s.total for s in counted),
        usable=sum(s.usable for s in counted),
        allocated=sum(min(s.requested, _capacity(s)) for s in known),
        available=_available(open_shares, known) if pods_known else None,
        available_nodes=tuple(s.node for s in open_shares if s.usable),
        unusable=tuple((s.node, s.total - s.usable, s.total) for s in counted if s.usable < s.total),
        not_ready=tuple(s.node for s in counted if not s.ready),
        cordoned=tuple(s.node for s in counted if not s.schedulable),
        stale=tuple(sorted(stale)),
        unknown=tuple(s.node for s in open_shares if s.allocatable is None),
        resources=tuple(sorted({s.resource for s in counted})),
        drivers=tuple(sorted({s.driver for s in counted if s.driver})),
        disagreements=_disagreements(counted, contents),
        simulated=not real,
        left_out=tuple(s.node for s in everyone if s.simulated) if real else (),
        pods_known=pods_known,
    )


def fold(
    records: Mapping[str, RecordView],
    nodes: Mapping[str, NodeView],
    pods: Iterable[PodView] | None,
    *,
    stale_before: float,
) -> dict[str, ClassState]:
    """Return every class of the cluster by name; `pods` is `None` where Pods may not be read."""
    requested = requests_by_node(pods or ())
    shares: dict[str, list[Share]] = {}
    for name, record in records.items():
        for share in shares_of(record, nodes.get(name), requested.get(name, {})):
            shares.setdefault(share.class_name, []).append(share)
    return {
        name: class_state(name, shares[name], stale_before=stale_before, pods_known=pods is not None)
        for name in sorted(shares)
    }


def requests_by_node(pods: Iterable[PodView]) -> dict[str, dict[str, int]]:
    """Return what the Pods of each node request together."""
    total: dict[str, dict[str, int]] = {}
    for pod in pods:
        of_node = total.setdefault(pod.node, {})
        for resource, count in pod.requests.items():
            of_node[resource] = of_node.get(resource, 0) + count
    return total


def _capacity(share: Share) -> int:
    return min(share.usable, share.allocatable or 0)


def _available(open_shares: Sequence[Share], known: Sequence[Share]) -> int | None:
    """Return what is free on the nodes that tell; where classes share a resource, every request may be of this one."""
    if open_shares and not known:
        return None
    return sum(max(0, _capacity(share) - share.requested) for share in known)


def _distinct(shares: Iterable[Share]) -> list[ClassContent]:
    """Return what the devices say; one that failed is heard only where no sound one speaks."""
    # By identity first: equal devices share one value, and hashing a content costs more than the whole sum.
    found = {id(content): content for share in shares for content in share.contents}
    told = list(dict.fromkeys(found.values()))
    return [content for content in told if not content.hearsay] or told


def _disagreements(shares: Sequence[Share], contents: Sequence[ClassContent]) -> tuple[Disagreement, ...]:
    if len(contents) < 2:
        return ()
    hearsay_counts = contents[0].hearsay
    distinct = {id(content): content for share in shares for content in share.contents}
    stated = {key: _facts(one) for key, one in distinct.items() if hearsay_counts or not one.hearsay}
    found = []
    for field in sorted({field for facts in stated.values() for field in facts}):
        # Drivers of several versions make several contents, which as a rule agree: then no node need be looked at.
        if len({facts.get(field) for facts in stated.values()}) == 1:
            continue
        said: dict[str, set[str]] = {}
        for share in shares:
            for content in share.contents:
                if id(content) not in stated:
                    continue
                said.setdefault(stated[id(content)].get(field, "not known"), set()).add(share.node)
        values = tuple((value, tuple(sorted(said[value]))) for value in sorted(said))
        found.append(Disagreement(field=field, values=values))
    return tuple(found)


@lru_cache(maxsize=4096)
def _facts(content: ClassContent) -> Mapping[str, str]:
    """Return the facts that nodes of one class should agree on, as text."""
    spec = content.spec
    stated = {name: str(spec[name]) for name in ("vendor", "family", "model") if name in spec}
    stated |= {name: str(value) for name, value in spec["capabilities"].items() if name != "features"}
    return stated | {f"feature {feature}": "yes" for feature in content.features}
