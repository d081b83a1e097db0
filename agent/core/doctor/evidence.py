"""What a cluster told, and what it should have told."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from agent.core.doctor.rights import Reviewed

Object = dict[str, Any]

Definition = Literal["absent", "not-readable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEvidence:
    """What a cluster told; a text in place of an object says why it was not told."""

    reviews: tuple[Reviewed, ...]
    records_definition: Object | Definition
    classes_definition: Object | Definition
    node_name: str | None
    """Of the Node that is looked at; `None`: all of them."""
    nodes: tuple[Object, ...] | str
    """The one Node, or all; none where the named one does not exist."""
    records: tuple[Object, ...] | str
    classes: tuple[Object, ...] | str
    """All of them, whichever Node is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the cluster should say."""

    domains: tuple[str, ...]
    """The label domain and former ones."""
    labels: Mapping[str, str] | None
    """Of the named Node by the facts of this machine; `None` where the two are not the same machine, or facts fail."""
    labels_not_known: str
    """Why `labels` is `None`."""
    stale_after_seconds: float
    now: datetime
