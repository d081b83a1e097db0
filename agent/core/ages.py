"""How old each record is, by the controller's monotonic clock: no wall clock that is stepped makes a record stale.

Pure. Only of a record that was there before this process is the age taken from what its agent's clock said.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.core.cluster_views import RecordView


@dataclass(frozen=True, slots=True, kw_only=True)
class Ages:
    """What was told of each record, and when it was heard."""

    told: Mapping[str, float] = field(default_factory=dict)
    """`observedAt` in seconds since the epoch, by the agent's clock."""
    heard: Mapping[str, float] = field(default_factory=dict)
    """Monotonic seconds at which the record was as new as it said."""


def aged(
    ages: Ages, records: Mapping[str, RecordView | None], *, wall: float, monotonic: float, starting: bool
) -> tuple[Ages, dict[str, RecordView | None]]:
    """Return the ages and the records that changed, each with its `observed_at` by the monotonic clock.

    `starting` says that these are the records that were there before: those were not written just now.
    """
    if not records:
        return ages, {}
    told, heard = dict(ages.told), dict(ages.heard)
    views: dict[str, RecordView | None] = {}
    for name, record in records.items():
        if record is None or record.observed_at is None:
            told.pop(name, None)
            heard.pop(name, None)
            views[name] = record
            continue
        if told.get(name) != record.observed_at:
            first = starting and name not in told
            heard[name] = monotonic - (max(0.0, wall - record.observed_at) if first else 0.0)
        told[name] = record.observed_at
        views[name] = record.observed(heard[name])
    return Ages(told=told, heard=heard), views
