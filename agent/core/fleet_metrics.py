"""What the controller knows → metric families, from its last report."""

from collections.abc import Iterator

from agent.core.families import Family, Sample, counter, gauge, one
from agent.core.fleet_report import InventoryReport
from agent.core.fold import ClassState


def fleet_families(report: InventoryReport) -> tuple[Family, ...]:
    """Return all families of the controller; class series come from the leader alone, so that sums are right."""
    return (*_class_families(report), *_controller_families(report), *_write_families(report))


def _class_families(report: InventoryReport) -> Iterator[Family]:
    states = report.classes if report.leading else ()
    yield gauge(
        "accelerator_class_info", "One class and what it is, always 1.", (_info(state) for state in states)
    )
    yield gauge(
        "accelerator_class_nodes",
        "Nodes that have devices of the class.",
        (one(len(state.nodes), **{"class": state.name}) for state in states),
    )
    yield gauge(
        "accelerator_class_devices",
        "Devices or partitions of the class: all, usable, requested by Pods, and free; free is absent when not known.",
        (sample for state in states for sample in _devices(state)),
    )
    yield gauge(
        "accelerator_class_foreign",
        "1 for a class of a name of ours that somebody else made.",
        (one(1, **{"class": name}) for name in (report.foreign if report.leading else ())),
    )


def _controller_families(report: InventoryReport) -> Iterator[Family]:
    yield gauge("accelerator_inventory_leader", "1 where this replica leads.", [one(float(report.leading))])
    yield gauge(
        "accelerator_inventory_complete",
        "1 once every object was heard of, so that what is absent is truly absent.",
        [one(float(report.complete))],
    )
    yield gauge("accelerator_inventory_records", "Node records that are known.", [one(report.records)])
    yield gauge(
        "accelerator_inventory_stale_records",
        "Node records that were not renewed in time.",
        [one(report.stale_records)],
    )
    yield gauge(
        "accelerator_inventory_unreadable_records",
        "Node records that could not be understood.",
        [one(len(report.unreadable_records))],
    )
    yield gauge(
        "accelerator_inventory_fold_duration_seconds",
        "How long the last fold took.",
        [one(report.fold_seconds)],
    )
    yield gauge(
        "accelerator_inventory_problems",
        "What hinders the work now; the log says what.",
        [one(len(report.problems))],
    )


def _write_families(report: InventoryReport) -> Iterator[Family]:
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
    success = report.last_success
    yield gauge(
        "accelerator_publish_last_success_timestamp_seconds",
        "When a target was last found or made right.",
        [] if success is None else [one(success.timestamp(), target="class")],
    )


def _info(state: ClassState) -> Sample:
    content = state.content
    labels = {
        "class": state.name,
        "vendor": content.vendor if content else "",
        "family": (content.family if content else None) or "",
        "model": (content.model if content else None) or "",
        "simulated": "true" if state.simulated else "false",
    }
    return Sample(value=1, labels=labels)


def _devices(state: ClassState) -> Iterator[Sample]:
    counts = {
        "total": state.total,
        "usable": state.usable,
        "allocated": state.allocated,
        "available": state.available,
    }
    for word, count in counts.items():
        if count is not None:
            yield one(count, **{"class": state.name}, state=word)
