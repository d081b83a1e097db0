"""What a subject is compared with, and what the one who asks may decide."""

from dataclasses import dataclass, replace
from datetime import datetime

from agent.core.keys import DEFAULT_DOMAIN
from agent.core.matching.hardware import ClassFacts
from agent.core.matching.nodes import NodeView


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """All classes and nodes that a subject is compared with."""

    classes: tuple[ClassFacts, ...]
    nodes: tuple[NodeView, ...] = ()
    source: str = ""
    """Where they come from, for people: `the cluster`, `classes.yaml`, `this machine`."""
    live: bool = False
    """Whether they were read from the cluster just now, so that the age of records counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the one who asks may decide."""

    policy: str | None = None
    """Stands in for the policy of the service."""
    only_listed: bool = True
    allow_partitions: bool = False
    allow_sharing: bool = False
    now: datetime | None = None
    domain: str = DEFAULT_DOMAIN


def without_list(options: Options) -> Options:
    """Return options under which the runtime's list of classes does not count, for a patch of that list."""
    return replace(options, only_listed=False)
