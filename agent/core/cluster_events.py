"""Events about Nodes and classes: one for each change of state, with a name that makes the same change the same Event.

Pure. Two replicas that see one change would create one object: the second creation is refused as existing.
"""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from agent.core.cluster_views import NodeView, RecordView, TroubledDevice
from agent.core.conditions import cut_message, timestamp
from agent.core.keys import INVENTORY_MANAGER

NAMESPACE = "default"
"""Where Events about objects without a namespace belong."""

_NAME_ROOM = 230
_GOOD_WHEN_TRUE = {"Ready", "Consistent", "Healthy", "AvailabilityKnown"}


def device_events(
    before: RecordView | None, after: RecordView, node: NodeView, *, now: datetime
) -> list[dict[str, Any]]:
    """Return an Event on the Node for each device whose state changed between two records."""
    if before is None:
        return []
    old = {device.id: device for device in before.troubled}
    new = {device.id: device for device in after.troubled}
    about = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
    events = [
        _event(about, _reason(device.state), _trouble(device), since=device.since, now=now)
        for key, device in new.items()
        if key not in old or old[key].state != device.state
    ]
    recovered = [device for key, device in old.items() if key not in new]
    return events + [
        _event(
            about,
            "AcceleratorRecovered",
            f"{device.product} {device.id} is ok",
            since=device.since,
            now=now,
            good=True,
        )
        for device in recovered
    ]


def class_events(
    live: Mapping[str, Any], changed: Iterable[Mapping[str, Any]], *, now: datetime
) -> list[dict[str, Any]]:
    """Return an Event on the class for each of our conditions that a status write changes."""
    known = {entry["type"] for entry in (live.get("status") or {}).get("conditions") or ()}
    events = []
    for entry in changed:
        good = (entry["status"] == "True") == (entry["type"] in _GOOD_WHEN_TRUE)
        # A class that is well from the start is no news.
        if good and entry["type"] not in known:
            continue
        about = _class_reference(live)
        reason, message = entry["reason"], entry["message"]
        events.append(_event(about, reason, message, since=timestamp(now), now=now, good=good))
    return events


def foreign_class_event(live: Mapping[str, Any], *, annotation: str, now: datetime) -> dict[str, Any]:
    """Return the Event that tells of a class with a name of ours that somebody else made."""
    name = live["metadata"]["name"]
    message = (
        f"this class was not made by the inventory and is left alone; annotate it with {annotation}={name} "
        "to have its empty fields and its status filled"
    )
    return _event(_class_reference(live), "ForeignClass", message, since="", now=now)


def pod_event(about: Mapping[str, str], reason: str, message: str, *, now: datetime) -> dict[str, Any]:
    """Return a warning about a Pod, in the Pod's namespace; the same words about the same Pod are the same Event."""
    return _event(about, reason, message, since="", now=now)


def _class_reference(live: Mapping[str, Any]) -> dict[str, str]:
    metadata = live["metadata"]
    return {
        "apiVersion": "ome.io/v1beta1",
        "kind": "AcceleratorClass",
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def _reason(state: str) -> str:
    return "Accelerator" + "".join(part.capitalize() for part in state.split("-"))


def _trouble(device: TroubledDevice) -> str:
    why = f": {', '.join(device.reasons)}" if device.reasons else ""
    return f"{device.product} {device.id} is {device.state}{why}"


def _event(
    about: Mapping[str, str],
    reason: str,
    message: str,
    *,
    since: str,
    now: datetime,
    good: bool = False,
) -> dict[str, Any]:
    message = cut_message(message)
    told = "\n".join((about["uid"], reason, message, since))
    digest = hashlib.sha256(told.encode()).hexdigest()[:16]
    stamp = timestamp(now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{about['name'][:_NAME_ROOM]}.{digest}",
            "namespace": about.get("namespace", NAMESPACE),
        },
        "involvedObject": dict(about),
        "reason": reason,
        "message": message,
        "type": "Normal" if good else "Warning",
        "source": {"component": INVENTORY_MANAGER},
        "reportingComponent": INVENTORY_MANAGER,
        "reportingInstance": INVENTORY_MANAGER,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
