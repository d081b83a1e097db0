"""The conditions of a record: what a person or an alert should know about the last probe."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from agent.core.inventory import Device, Inventory
from agent.core.outcomes import Published
from agent.core.past import GONE_FOR, Gone
from probes.facts import NodeFacts

MAX_MESSAGE_BYTES = 1024


def conditions_of(inventory: Inventory) -> list[dict[str, Any]]:
    """Return the conditions after a probe that could ask, without times."""
    facts = inventory.facts
    unhealthy = [device for device in inventory.devices if device.assessment.state != "ok"]
    unread = [
        device.key
        for device in inventory.devices
        if device.facts.mig is not None and device.facts.mig.partitions is None
    ]
    healthy = condition("AllDevicesHealthy", "True", "AllHealthy", "every device is ok")
    if unhealthy:
        healthy = condition("AllDevicesHealthy", "False", "UnhealthyDevices", _listed_states(unhealthy))
    complete = condition("InventoryComplete", "True", facts.reason, facts.message)
    if unread:
        message = (
            f"MIG partitions of {', '.join(unread)} may not be read: give the pod CAP_SYS_ADMIN and "
            "NVIDIA_MIG_MONITOR_DEVICES=all (the mig overlay does)"
        )
        complete = condition("InventoryComplete", "False", "MigNotReadable", message)
    elif facts.verdict == "partial":
        complete = condition("InventoryComplete", "False", facts.reason, facts.message)
    elif inventory.gone:
        complete = condition("InventoryComplete", "False", "DeviceGone", _gone_message(inventory.gone))
    return [
        condition("ProbeSucceeded", "True", facts.reason, facts.message),
        condition("DriverReady", "True", "DriverAnswers", _driver_message(facts)),
        healthy,
        complete,
    ]


def failure_conditions(facts: NodeFacts) -> list[dict[str, Any]]:
    """Return the conditions that a probe which could not ask changes, without times."""
    ready = "Unknown" if facts.verdict == "no-answer" else "False"
    return [
        condition("ProbeSucceeded", "False", facts.reason, facts.message),
        condition("DriverReady", ready, facts.reason, facts.message),
    ]


def labels_condition(labels: Published) -> dict[str, Any]:
    """Return the condition about the Node's labels: what was refused, and what other managers own."""
    if labels.failed:
        return condition("LabelsPublished", "False", labels.reason, labels.message)
    if labels.rivals:
        message = "owned by others: " + ", ".join(
            f"{key} by {name}" for key, name in sorted(labels.rivals.items())
        )
        return condition("LabelsPublished", "False", "OwnedByOthers", message)
    return condition("LabelsPublished", "True", "AllPublished", "every label is as it should be")


def condition(type_: str, status: str, reason: str, message: str) -> dict[str, Any]:
    """Return one condition without its time; its message is cut to the bound."""
    return {"type": type_, "status": status, "reason": reason, "message": cut_message(message)}


def dated(
    conditions: Iterable[Mapping[str, Any]], previous: Mapping[str, Any] | None, now: datetime
) -> list[dict[str, Any]]:
    """Return the conditions, each with the time of its last change of status; `previous` is the whole record before."""
    before = {old["type"]: old for old in ((previous or {}).get("status") or {}).get("conditions", ())}
    result = []
    for entry in conditions:
        old = before.get(entry["type"], {})
        unchanged = old.get("status") == entry["status"] and "lastTransitionTime" in old
        since = old["lastTransitionTime"] if unchanged else timestamp(now)
        result.append({**entry, "lastTransitionTime": since})
    return result


def _listed_states(devices: Iterable[Device]) -> str:
    return "; ".join(
        f"{device.key} (index {device.facts.index}) is {device.assessment.state}"
        + (f": {', '.join(device.assessment.reasons)}" if device.assessment.reasons else "")
        for device in devices
    )


def _gone_message(gone: Iterable[Gone]) -> str:
    listed = ", ".join(
        f"{one.product or 'an accelerator'} {one.id}{f' at {one.address}' if one.address else ''} "
        f"(since {timestamp(one.since)})"
        for one in gone
    )
    return (
        f"neither the driver nor the bus shows what was here before: {listed}; if it was not taken out on purpose, the "
        f"operator of this node should look at it. This is said for {GONE_FOR.days} days"
    )


def _driver_message(facts: NodeFacts) -> str:
    versions = [f"{driver.name} {driver.version or '(version not known)'}" for driver in facts.drivers]
    return ", ".join(versions) or "no driver is needed: the node has no accelerator"


def timestamp(moment: datetime) -> str:
    """Return a moment as Kubernetes writes it: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def cut_message(text: str) -> str:
    """Return `text` within the bound of a condition's message."""
    encoded = text.encode()
    if len(encoded) <= MAX_MESSAGE_BYTES:
        return text
    return encoded[: MAX_MESSAGE_BYTES - 3].decode(errors="ignore") + "…"
