"""The controller's pools → metric families; series come from the leader alone, so that sums are right."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from agent.core.families import Family, counter, gauge, one
from agent.core.pools.report import PoolReport


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolsReport:
    """What the controller knows of all pools and of its own work on them."""

    installed: bool = False
    """Whether the cluster has a definition of InferencePool."""
    leading: bool = False
    pools: tuple[PoolReport, ...] = ()
    asked: Mapping[str, int] = field(default_factory=dict)
    """By outcome: `ok`, or the word of a refusal."""
    writes: Mapping[str, int] = field(default_factory=dict)
    """By target: `pod`, `pod-event`."""
    failures: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(target, reason) → how often."""
    problems: tuple[str, ...] = ()


def pool_families(report: PoolsReport) -> Iterator[Family]:
    """Yield the families of pools; without the definition of InferencePool they have no series."""
    pools = report.pools if report.leading else ()
    yield gauge(
        "accelerator_pool_endpoints",
        "Endpoints of a pool by the class they run on, their engine and their LoRA state; unknown for what is not known.",
        (
            one(count, **_of(pool), **{"class": class_name}, engine=engine, lora=lora)
            for pool in pools
            for (class_name, engine, lora), count in sorted(pool.counts.items())
        ),
    )
    yield gauge(
        "accelerator_pool_homogeneous",
        "1 where all endpoints of a pool run on one class, 0 where not; absent where it is not known.",
        (one(float(pool.homogeneous), **_of(pool)) for pool in pools if pool.homogeneous is not None),
    )
    yield gauge(
        "accelerator_pool_label_contradictions",
        "Endpoints of a pool whose labels say another engine or class than what was found.",
        (one(pool.contradictions, **_of(pool)) for pool in pools),
    )
    yield gauge(
        "accelerator_pool_odd_endpoints",
        "Endpoints of a pool whose KV cache is far from that of their peers.",
        (one(len(pool.odd), **_of(pool)) for pool in pools),
    )
    yield counter(
        "accelerator_pool_asks",
        "Times that an endpoint of a pool was asked what it serves, by outcome.",
        (one(count, outcome=outcome) for outcome, count in sorted(report.asked.items())),
    )
    yield counter(
        "accelerator_publish_writes",
        "Writes to the API server.",
        (one(count, target=target) for target, count in sorted(report.writes.items())),
    )
    yield counter(
        "accelerator_publish_failures",
        "Times that something could not be published, by reason.",
        (
            one(count, target=target, reason=reason)
            for (target, reason), count in sorted(report.failures.items())
        ),
    )


def _of(report: PoolReport) -> dict[str, str]:
    return {"namespace": report.pool.namespace, "pool": report.pool.name}
