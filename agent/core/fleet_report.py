"""What the controller knows of the fleet and of itself: the value from which metrics, health and the page are made."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from agent.core.fold import ClassState


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryReport:
    """What the controller knows of itself, for metrics, health and the page."""

    leading: bool = False
    complete: bool = False
    """All caches were filled once."""
    classes_installed: bool = True
    records: int = 0
    stale_records: int = 0
    unreadable_records: tuple[str, ...] = ()
    classes: tuple[ClassState, ...] = ()
    foreign: tuple[str, ...] = ()
    """Classes with a name of ours that somebody else made."""
    fold_seconds: float = 0.0
    writes: Mapping[str, int] = field(default_factory=dict)
    """By target: `class`, `class-status`, `event`."""
    failures: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By (target, kind of refusal)."""
    problems: tuple[str, ...] = ()
    """What hinders the work now, for people."""
    last_success: datetime | None = None
