"""What to write into the status of an AcceleratorClass: figures, conditions, and what is OME's to write.

Pure. The status is forced, over conditions that were read before; condition types of others are kept.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from agent.core.class_plan import Override
from agent.core.conditions import condition, dated, timestamp
from agent.core.fold import ClassState
from agent.core.keys import INVENTORY_MANAGER
from agent.core.ownership import Object, other_owners, owners

CONDITION_TYPES = (
    "Ready",
    "Consistent",
    "Healthy",
    "AvailabilityKnown",
    "Overridden",
    "Stale",
    "Simulated",
)
OME_FINALIZER = "acceleratorclasses.ome.io/finalizer"
MAX_NODES = 1000
"""Node names in a status; the object stays small, and the full list is the label's."""

_OME_REACTS_WITHIN_SECONDS = 30.0
_FIGURES = ("totalAccelerators", "availableAccelerators")
_NODE_FIELDS = ("nodes", "availableNodes")


def conditions_of(state: ClassState, overridden: Sequence[Override] = ()) -> list[dict[str, Any]]:
    """Return all of our conditions, without times."""
    return [
        _ready(state),
        _consistent(state),
        _healthy(state),
        _availability(state),
        _overridden(overridden),
        _stale(state),
        _simulated(state),
    ]


def wanted_status(
    state: ClassState, live: Object, overridden: Sequence[Override], *, now: datetime, with_nodes: bool
) -> dict[str, Any]:
    """Return the status to write over the live object's; `with_nodes` where OME's controller does not run."""
    ours = dated(conditions_of(state, overridden), live, now)
    held = (live.get("status") or {}).get("conditions") or []
    foreign = [entry for entry in held if entry["type"] not in CONDITION_TYPES]
    status: dict[str, Any] = {"totalAccelerators": state.total, "conditions": [*foreign, *ours]}
    if state.available is not None:
        status["availableAccelerators"] = state.available
    if with_nodes:
        status["nodes"] = list(state.nodes[:MAX_NODES])
        status["availableNodes"] = len(state.available_nodes)
        status["lastUpdated"] = timestamp(now)
    return status


def status_differs(live: Object, wanted: dict[str, Any]) -> bool:
    """Tell whether the live status says something else than the wanted one, times and order aside."""
    held = live.get("status") or {}
    for name in (*_FIGURES, *_NODE_FIELDS):
        if name in wanted:
            if held.get(name, [] if name == "nodes" else None) != wanted[name]:
                return True
        # What another manager owns stays after our apply: to write again would change nothing.
        elif name in held and INVENTORY_MANAGER in owners(live, ("status", name)):
            return True
    return _by_type(held.get("conditions") or ()) != _by_type(wanted["conditions"])


def changed_conditions(live: Object, wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """Return our conditions whose status or reason the write changes."""
    before = {entry["type"]: entry for entry in (live.get("status") or {}).get("conditions") or ()}
    changed = []
    for entry in wanted["conditions"]:
        old = before.get(entry["type"], {})
        if entry["type"] in CONDITION_TYPES and any(
            old.get(part) != entry[part] for part in ("status", "reason")
        ):
            changed.append(entry)
    return changed


def ome_writes_nodes(live: Object, classes: Iterable[Object], *, now: datetime) -> bool:
    """Tell whether OME's controller runs, so that `nodes`, `availableNodes` and `lastUpdated` are its business.

    It puts a finalizer on each class that it sees. A class too young to have it yet counts as if it ran.
    """
    if any(_shows_ome(one) for one in (live, *classes)):
        return True
    made = live["metadata"].get("creationTimestamp")
    age = (now - datetime.fromisoformat(made)).total_seconds() if made else 0.0
    # A class from the future was made before a clock was set back: it is as old as any.
    return -_OME_REACTS_WITHIN_SECONDS < age < _OME_REACTS_WITHIN_SECONDS


def names_listed(names: Sequence[str], limit: int = 5) -> str:
    """Return the first names, and how many more there are."""
    shown = ", ".join(names[:limit])
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown


def _shows_ome(live: Object) -> bool:
    if OME_FINALIZER in (live["metadata"].get("finalizers") or ()):
        return True
    return bool(other_owners(live, ("status", "nodes"), INVENTORY_MANAGER))


def _by_type(conditions: Iterable[dict[str, Any]]) -> dict[str, tuple[str, str, str]]:
    return {c["type"]: (c["status"], c.get("reason", ""), c.get("message", "")) for c in conditions}


def _ready(state: ClassState) -> dict[str, Any]:
    if not state.nodes:
        return condition(
            "Ready",
            "False",
            "NoNodes",
            "no node has a device of this class; it is kept for those who name it",
        )
    if not state.usable:
        return condition("Ready", "False", "NoUsableDevice", f"none of {state.total} devices can be used")
    devices = "1 device" if state.total == 1 else f"{state.total} devices"
    nodes = "1 node" if len(state.nodes) == 1 else f"{len(state.nodes)} nodes"
    return condition("Ready", "True", "DevicesUsable", f"{state.usable} of {devices} on {nodes}")


def _consistent(state: ClassState) -> dict[str, Any]:
    if not state.nodes:
        return condition("Consistent", "Unknown", "NoNodes", "no node has a device of this class")
    if not state.disagreements:
        return condition("Consistent", "True", "NodesAgree", "all nodes state the same facts")
    told = "; ".join(
        f"{one.field}: " + ", ".join(f"{value} ({names_listed(nodes, 3)})" for value, nodes in one.values)
        for one in state.disagreements
    )
    return condition(
        "Consistent", "False", "NodesDisagree", f"the class states what every node reaches. {told}"
    )


def _healthy(state: ClassState) -> dict[str, Any]:
    if not state.nodes:
        return condition("Healthy", "Unknown", "NoNodes", "no node has a device of this class")
    if not state.unusable:
        return condition("Healthy", "True", "AllDevicesUsable", "every device can be used")
    told = [f"{node} ({unusable} of {total})" for node, unusable, total in state.unusable]
    return condition("Healthy", "False", "DevicesUnusable", f"unusable devices on {names_listed(told)}")


def _availability(state: ClassState) -> dict[str, Any]:
    resources = " or ".join(state.resources) or "resource"
    if not state.pods_known:
        message = "the controller may not list pods: grant it list and watch on pods"
        return condition("AvailabilityKnown", "False", "PodsNotReadable", message)
    if not state.nodes:
        return condition("AvailabilityKnown", "True", "NoNodes", "nothing is available")
    left = _left_out(state)
    if state.unknown:
        message = f"no {resources} in allocatable of {names_listed(state.unknown)}: no device plugin, or another name"
        return condition("AvailabilityKnown", "False", "ResourceNotOffered", "; ".join([message, *left[1]]))
    if left[0]:
        return condition("AvailabilityKnown", "True", left[0], "; ".join(left[1]))
    return condition("AvailabilityKnown", "True", "AllNodesCounted", f"allocatable {resources} less requests")


def _left_out(state: ClassState) -> tuple[str, list[str]]:
    """Return why nodes do not count as available: one word for the reason, and a phrase for each cause."""
    causes = (
        ("NodesNotReady", state.not_ready, "not Ready"),
        ("NodesCordoned", state.cordoned, "cordoned"),
        ("RecordsStale", state.stale, "without a recent record"),
    )
    words = [word for word, nodes, _ in causes if nodes]
    phrases = [
        f"{phrase}, so nothing counts there: {names_listed(nodes)}" for _, nodes, phrase in causes if nodes
    ]
    return (words[0] if len(words) == 1 else "NodesLeftOut" if words else ""), phrases


def _overridden(overridden: Sequence[Override]) -> dict[str, Any]:
    if not overridden:
        return condition(
            "Overridden", "False", "NoFieldOverridden", "every field has the value that was found"
        )
    told = [
        f"{one.field} is {one.theirs}" + (f" by {one.manager}" if one.manager else "") + f", found {one.ours}"
        for one in overridden
    ]
    return condition("Overridden", "True", "FieldsOverridden", "; ".join(told))


def _stale(state: ClassState) -> dict[str, Any]:
    if not state.stale:
        return condition("Stale", "False", "RecordsRecent", "every record was renewed in time")
    message = f"no recent record from {names_listed(state.stale)}: look at the agent there"
    return condition("Stale", "True", "RecordsStale", message)


def _simulated(state: ClassState) -> dict[str, Any]:
    if state.simulated and state.nodes:
        return condition(
            "Simulated", "True", "SimulatedFacts", f"facts are simulated on {names_listed(state.nodes)}"
        )
    if state.left_out:
        message = f"simulated nodes do not count beside real ones: {names_listed(state.left_out)}"
        return condition("Simulated", "False", "SimulatedNodesLeftOut", message)
    return condition("Simulated", "False", "HardwareFacts", "facts come from hardware")
