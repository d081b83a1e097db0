"""Which class a pod runs on: of its Node's record, the class behind the resource that the pod asks for."""

from dataclasses import dataclass

from agent.core.classes import ClassContent
from agent.core.cluster_views import RecordedClass, RecordView
from agent.core.pools.views import PoolPod

# As pickers' own guides write them.
_VARIANTS = {"nvidia": "gpu", "amd": "gpu", "intel": "xpu", "google": "tpu"}
_GAUDI = ("habana", "hpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodHardware:
    """What one pod runs on."""

    class_name: str | None
    reason: str
    """Why the class is not known; empty where it is."""
    vendor: str | None = None
    """In pickers' words."""
    variant: str | None = None
    accelerators: int = 0
    """How many it asks for; 1 where it asks by claims."""
    bandwidth_gbps: float | None = None
    """Of one accelerator, as its class states it."""
    fp16_tflops: float | None = None


def hardware_of(pod: PoolPod, record: RecordView | None) -> PodHardware:
    """Return what a pod runs on; `record` is that of its Node, `None` where there is none."""
    if record is None:
        return _unknown(f"the node {pod.node} has no record of its accelerators")
    if record.problem is not None:
        return _unknown(f"the record of {pod.node} cannot be read: {record.problem}")
    there = [part for part in record.classes if part.total]
    asked = [part for part in there if pod.requests.get(part.resource)]
    if not asked and pod.claims:
        asked = there
    if not asked:
        return _unknown(f"it asks for no accelerator that {pod.node} has")
    if len(asked) > 1:
        names = ", ".join(sorted(part.name for part in asked))
        return _unknown(f"{pod.node} has several classes that it may run on: {names}")
    return _known(pod, asked[0])


def _known(pod: PoolPod, part: RecordedClass) -> PodHardware:
    content = part.contents[0] if part.contents else None
    vendor = content.vendor if content else None
    variant = _VARIANTS.get(vendor or "")
    if content and (content.family or "").startswith("gaudi"):
        vendor, variant = _GAUDI
    return PodHardware(
        class_name=part.name,
        reason="",
        vendor=vendor if variant else None,
        variant=variant,
        accelerators=pod.requests.get(part.resource, 1),
        bandwidth_gbps=(content.bandwidth_gbps or content.derived_bandwidth_gbps) if content else None,
        fp16_tflops=_fp16(content) if content else None,
    )


def _unknown(reason: str) -> PodHardware:
    return PodHardware(class_name=None, reason=reason)


def _fp16(content: ClassContent) -> float | None:
    return next((peak.tera_ops for peak in content.peaks if peak.precision == "fp16" and peak.dense), None)
