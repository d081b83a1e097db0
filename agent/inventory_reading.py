"""One look at the whole cluster: what the controller would write now, and the fleet as a table. Writes nothing."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from agent.class_writer import ClassWriter, Difference, Target
from agent.cluster import (
    ACCELERATOR_CLASSES,
    ACCELERATOR_NODES,
    CRDS,
    NODES,
    PODS,
    Cluster,
    Forbidden,
    NotFound,
    Object,
)
from agent.core.class_plan import Override
from agent.core.class_spec import ClassOptions, adopted_class, is_ours
from agent.core.cluster_views import NodeView, PodView, RecordView, node_view, pod_view, record_view
from agent.core.fold import ClassState, fold
from agent.core.keys import INVENTORY_MANAGER
from agent.core.ownership import owned_paths
from agent.inventory_pass import CLASS_DEFINITION

_VIEW = "view"

FOREIGN = "somebody else's"
"""What the fleet table says of a class of a name of ours that we did not make and may not write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReading:
    """Everything that the fold needs, read once."""

    records: dict[str, RecordView]
    nodes: dict[str, NodeView]
    pods: tuple[PodView, ...] | None
    """`None` where they may not be listed."""
    classes: dict[str, Object]
    classes_installed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OncePlan:
    """What the controller would write now."""

    differences: tuple[Difference, ...]
    """One for each class that is not as it should be."""
    overridden: dict[str, tuple[Override, ...]]
    """Class → the fields of it that another manager decides, with another value than ours."""
    foreign: tuple[str, ...]
    """Classes with a name of ours that somebody else made, and that are left alone."""
    classes_installed: bool
    live: dict[str, Object]


def read_cluster(cluster: Cluster, *, domain: str) -> ClusterReading:
    """List records, Nodes, Pods and classes. Raises `NotFound` where there is no definition of records."""
    records, _ = cluster.list_all(
        ACCELERATOR_NODES, project=lambda obj: {_VIEW: record_view(obj, domain=domain)}
    )
    nodes, _ = cluster.list_all(NODES, project=lambda obj: {_VIEW: node_view(obj)})
    pods: list[Object] | None
    try:
        pods, _ = cluster.list_all(PODS, project=lambda obj: {_VIEW: pod_view(obj)})
    except Forbidden:
        pods = None
    try:
        classes, installed = cluster.list_all(ACCELERATOR_CLASSES)[0], True
    except NotFound:
        classes, installed = [], False
    return ClusterReading(
        records={item[_VIEW].name: item[_VIEW] for item in records},
        nodes={item[_VIEW].name: item[_VIEW] for item in nodes},
        pods=None if pods is None else tuple(item[_VIEW] for item in pods if item[_VIEW] is not None),
        classes={obj["metadata"]["name"]: obj for obj in classes},
        classes_installed=installed,
    )


def class_states(reading: ClusterReading, *, now: datetime, stale_after: timedelta) -> dict[str, ClassState]:
    """Return every class that a node has."""
    return fold(
        reading.records,
        reading.nodes,
        reading.pods,
        stale_before=(now - stale_after).timestamp(),
    )


def plan_once(
    cluster: Cluster, options: ClassOptions, *, now: datetime, stale_after: timedelta = timedelta(minutes=40)
) -> OncePlan:
    """Return what the controller would write into the cluster as it is."""
    reading = read_cluster(cluster, domain=options.domain)
    states = class_states(reading, now=now, stale_after=stale_after)
    writer = ClassWriter(cluster, options, now=lambda: now)
    writer.learn(_definition(cluster), reading.classes.values())
    targets, foreign = _targets(reading, states, options)
    differences = []
    overridden = {}
    for target in targets:
        others = [obj for name, obj in reading.classes.items() if name != target.name]
        found = writer.difference(target, reading.classes.get(target.name), others)
        if found.is_some:
            differences.append(found)
        if found.overridden:
            overridden[target.name] = found.overridden
    return OncePlan(
        differences=tuple(differences) if reading.classes_installed else (),
        overridden=overridden,
        foreign=foreign,
        classes_installed=reading.classes_installed,
        live=reading.classes,
    )


def difference_lines(difference: Difference, live: Object | None) -> tuple[str, ...]:
    """Return each value that would change, as `path: old -> new`; times are left out."""
    held = live or {}
    lines: list[str] = []
    spec = difference.spec
    if spec is not None:
        metadata, before = spec.get("metadata", {}), held.get("metadata", {})
        for part in ("labels", "annotations"):
            lines += _changes(metadata.get(part, {}), before.get(part), f"metadata.{part}")
        lines += _changes(spec.get("spec", {}), held.get("spec"), "spec")
        lines += _given_up(spec, held)
    if difference.status is not None:
        status = {name: value for name, value in difference.status.items() if name != "lastUpdated"}
        lines += _changes(status, held.get("status"), "status")
    return tuple(lines)


def fleet_rows(
    states: dict[str, ClassState], classes: dict[str, Object], options: ClassOptions
) -> tuple[tuple[str, int, int, int, int | None, str, str, str, str], ...]:
    """Return for each class: name, nodes, total, usable, available, memory, capability, precisions, conditions.

    Classes that no node has any more are there with zeros. The conditions are those that tell of trouble.
    """
    rows = []
    for name in sorted(states.keys() | classes.keys()):
        state = states.get(name) or ClassState(name=name, content=None)
        live = classes.get(name, {})
        spec = state.content.spec if state.content else live.get("spec") or {}
        capabilities = spec.get("capabilities") or {}
        rows.append(
            (
                name,
                len(state.nodes),
                state.total,
                state.usable,
                state.available,
                str(capabilities.get("memoryGB", "")),
                str(capabilities.get("computeCapability", "")),
                _precisions(capabilities.get("features") or ()),
                _troubles(live) if not live or _is_managed(live, options) else FOREIGN,
            )
        )
    return tuple(rows)


def _is_managed(live: Object, options: ClassOptions) -> bool:
    return is_ours(live, options) or adopted_class(live, options) is not None


def _targets(
    reading: ClusterReading, states: dict[str, ClassState], options: ClassOptions
) -> tuple[list[Target], tuple[str, ...]]:
    adopters: dict[str, str] = {}
    for name in sorted(reading.classes):
        canonical = adopted_class(reading.classes[name], options)
        if canonical:
            adopters.setdefault(canonical, name)
    by_object = {adopters.get(name, name): state for name, state in states.items()}
    targets, foreign = [], []
    for name in sorted(by_object.keys() | reading.classes.keys()):
        live = reading.classes.get(name)
        state = by_object.get(name) or ClassState(name=name, content=None)
        adopted = name in adopters.values()
        if live is not None and "deletionTimestamp" in live["metadata"]:
            continue
        if live is not None and not adopted and not is_ours(live, options):
            foreign += [name] if name in by_object else []
        else:
            targets.append(Target(name=name, state=state, adopted=adopted))
    return targets, tuple(foreign)


def _definition(cluster: Cluster) -> Object | None:
    try:
        return cluster.get(CRDS, CLASS_DEFINITION)
    except Forbidden:
        return None


def _given_up(body: Object, live: Object) -> list[str]:
    """Return the fields that an apply removes: ours in the live object, and not in the body."""
    if "apiVersion" not in body or not live:
        return []
    lines = []
    for path in sorted(owned_paths(live, INVENTORY_MANAGER)):
        wanted, held = _at(body, path), _at(live, path)
        if path[0] in {"metadata", "spec"} and wanted is None and held is not None:
            lines.append(f"{'.'.join(path)}: {held} -> (none)")
    return lines


def _at(obj: object, path: tuple[str, ...]) -> object:
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj


def _changes(wanted: object, live: object, path: str) -> list[str]:
    if isinstance(wanted, dict):
        held = live if isinstance(live, dict) else {}
        return [
            line
            for name in sorted(wanted)
            for line in _changes(wanted[name], held.get(name), f"{path}.{name}")
        ]
    if wanted == live:
        return []
    if path == "status.conditions":
        return _changed_conditions(wanted, live)
    return [f"{path}: {'(none)' if live is None else live} -> {'(none)' if wanted is None else wanted}"]


def _changed_conditions(wanted: object, live: object) -> list[str]:
    def by_type(conditions: object) -> dict[str, str]:
        listed = conditions if isinstance(conditions, list) else []
        return {one["type"]: f"{one['status']} {one.get('reason', '')}" for one in listed}

    before, after = by_type(live), by_type(wanted)
    return [
        f"status.conditions[{name}]: {before.get(name, '(none)')} -> {after[name]}"
        for name in after
        if before.get(name) != after[name]
    ]


def _precisions(features: object) -> str:
    order = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp6", "fp4", "int8", "int4")
    held = set(features) if isinstance(features, list | tuple) else set()
    return " ".join(name for name in order if name in held)


def _troubles(live: Object) -> str:
    bad = {("Overridden", "True"), ("Stale", "True"), ("Simulated", "True")} | {
        (name, status)
        for name in ("Ready", "Consistent", "Healthy", "AvailabilityKnown")
        for status in ("False", "Unknown")
    }
    conditions = (live.get("status") or {}).get("conditions") or ()
    return " ".join(
        f"{one['type']}={one['status']}:{one.get('reason', '')}"
        for one in conditions
        if (one["type"], one["status"]) in bad
    )
