"""What should be written on a pod: labels where they are absent, never over a value that is not ours; and Events.

What is not known at present is kept as it was: a server that is restarting must not lose its labels.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agent.core.cluster_events import pod_event
from agent.core.pools.lora import LoraState
from agent.core.pools.names import ENGINE_LABEL, ENGINE_LABELS, VARIANT_LABEL, VENDOR_LABEL, PoolKeys
from agent.core.pools.report import Endpoint, PoolReport
from agent.core.pools.views import PoolPod

_STRONGEST: Sequence[LoraState] = ("active", "enabled", "off")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlan:
    """What to apply to one pod: all that our manager should own there."""

    pod: PoolPod
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    @property
    def body(self) -> dict[str, Any]:
        """Return the object to apply; bound to this pod, so that one made anew under its name is left alone."""
        metadata: dict[str, Any] = {
            "name": self.pod.name,
            "namespace": self.pod.namespace,
            "uid": self.pod.uid,
            "labels": dict(self.labels),
        }
        if self.annotations:
            metadata["annotations"] = dict(self.annotations)
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


def pod_plans(reports: Iterable[PoolReport], keys: PoolKeys) -> tuple[PodPlan, ...]:
    """Return what has to be written, on pods of the namespaces that allow it; nothing where all is as it should be."""
    endpoints: dict[str, list[Endpoint]] = {}
    for report in reports:
        if report.opt_in.write:
            for endpoint in report.endpoints:
                endpoints.setdefault(endpoint.pod.uid, []).append(endpoint)
    plans = (_plan(of_pod, keys) for of_pod in endpoints.values())
    return tuple(plan for plan in plans if plan is not None)


def pod_labels(endpoints: Sequence[Endpoint], keys: PoolKeys) -> dict[str, str | None]:
    """Return the labels that one pod's endpoints make, `None` for what is not known or on which they disagree."""
    hardware = endpoints[0].hardware
    engines = {one.served.engine for one in endpoints if one.served}
    return {
        keys.class_: hardware.class_name,
        VARIANT_LABEL: hardware.variant,
        VENDOR_LABEL: hardware.vendor,
        ENGINE_LABEL: engines.pop() if len(engines) == 1 else None,
    }


def contradiction_events(reports: Iterable[PoolReport], *, now: datetime) -> tuple[dict[str, Any], ...]:
    """Return an Event for each label that says another thing than what was found, where writing is allowed."""
    told = {
        (endpoint.pod.uid, text): (endpoint.pod, text)
        for report in reports
        if report.opt_in.write
        for endpoint in report.endpoints
        for text in endpoint.contradictions
    }
    return tuple(
        pod_event(
            {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
            "PoolLabelContradiction",
            text,
            now=now,
        )
        for pod, text in told.values()
    )


def _plan(endpoints: Sequence[Endpoint], keys: PoolKeys) -> PodPlan | None:
    pod = endpoints[0].pod
    wanted = pod_labels(endpoints, keys)
    if any(key != ENGINE_LABEL and pod.labels.get(key) for key in ENGINE_LABELS):
        wanted[ENGINE_LABEL] = None  # pickers read the older label too
    labels = _writable(wanted, pod.labels, pod)
    states = {one.lora.state for one in endpoints if one.served}
    state = next((state for state in _STRONGEST if state in states), None)
    if pod.lora == "active" and state == "enabled":
        state = "active"  # adapters were seen; whether one is busy now is no reason to write each minute
    held = {keys.lora: pod.lora} if pod.lora is not None else {}
    annotations = _writable({keys.lora: state}, held, pod) if _asked(endpoints) else {}
    if labels.items() <= pod.labels.items() and annotations.items() <= held.items():
        return None
    return PodPlan(pod=pod, labels=labels, annotations=annotations)


def _asked(endpoints: Sequence[Endpoint]) -> bool:
    return any(one.served for one in endpoints) or endpoints[0].pod.lora is not None


def _writable(wanted: Mapping[str, str | None], held: Mapping[str, str], pod: PoolPod) -> dict[str, str]:
    """Return the keys that are absent or ours alone, with the wanted value, else with the one that they have."""
    found = {}
    for key, value in wanted.items():
        if key in held and key not in pod.ours:
            continue
        kept = value if value is not None else held.get(key)
        if kept is not None:
            found[key] = kept
    return found
