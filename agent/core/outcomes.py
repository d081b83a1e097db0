"""What became of the last pass: values from which metrics, conditions and the page are made."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from agent.core.inventory import Inventory
from probes.facts import NodeFacts

PublishTarget = Literal["labels", "record"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What one target's publishing came to."""

    target: PublishTarget
    written: bool = False
    reason: str = "Unchanged"
    """One CamelCase word; `Unchanged` and `Written` are good news, all others a failure or something held back."""
    message: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Label keys, or fields of the record, that were not published, each with why."""
    rivals: Mapping[str, str] = field(default_factory=dict)
    """Label keys that another manager owns, each with its name."""

    @property
    def failed(self) -> bool:
        """Tell whether the target may differ from what it should be."""
        return self.reason not in {"Unchanged", "Written", "NothingToWrite"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishTally:
    """Totals since the process started, of one target."""

    writes: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    """Reason → times."""
    last_success: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """The state of an agent after its last pass."""

    facts: NodeFacts | None = None
    """The last probe, whatever it came to; `None` before the first."""
    inventory: Inventory | None = None
    """The last probe that could ask."""
    inventory_monotonic: float | None = None
    inventory_wall: datetime | None = None
    published: tuple[Published, ...] = ()
    tallies: Mapping[str, PublishTally] = field(default_factory=dict)
    passes: int = 0
    xid_errors: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """(device key, code) → times seen."""

    def age_seconds(self, monotonic: float) -> float | None:
        """Return the age of the last good probe by the monotonic clock, `None` before the first."""
        return None if self.inventory_monotonic is None else monotonic - self.inventory_monotonic

    def is_fresh(self, monotonic: float, stale_after_seconds: float) -> bool:
        """Tell whether the last good probe is young enough for its figures to be shown."""
        age = self.age_seconds(monotonic)
        return age is not None and age <= stale_after_seconds
