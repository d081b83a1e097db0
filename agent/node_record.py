"""An agent's record from pass to pass: written when it says something new, and renewed by a heartbeat."""

import logging
from collections.abc import Callable
from datetime import datetime

from agent.cluster import Cluster, Object
from agent.core.conditions import labels_condition
from agent.core.health import Instant
from agent.core.inventory import Inventory
from agent.core.outcomes import Published
from agent.core.record import (
    NodeIdentity,
    is_of_former_node,
    record_after_failure,
    record_for,
    under_former_owner,
)
from agent.node_publish import apply_record
from probes.facts import NodeFacts

LOG = logging.getLogger(__name__)

COLLECTOR_SECONDS = 90.0
"""For so long a record of a former Node of the same name is left to the garbage collector. It takes a second as a rule, and
misses a Node that is made again while it does not hear of Nodes."""


class NodeRecord:
    """Publishes the record and remembers when it was written last."""

    def __init__(self, *, agent_version: str, heartbeat_seconds: Callable[[], float]) -> None:
        """`heartbeat_seconds` returns the time to the next heartbeat, jittered."""
        self._agent_version = agent_version
        self._heartbeat_seconds = heartbeat_seconds
        self._next_heartbeat: float | None = None
        self._owner_gone_since: float | None = None
        self._undeclared: frozenset[str] = frozenset()

    def publish(
        self,
        cluster: Cluster,
        *,
        node: Object,
        live: Object | None,
        facts: NodeFacts,
        inventory: Inventory | None,
        labels: Published,
        now: Instant,
    ) -> Published:
        """Write what this probe found; `inventory` is `None` where it could not ask, which changes conditions alone."""
        identity = NodeIdentity(name=node["metadata"]["name"], uid=node["metadata"]["uid"])
        if inventory is None:
            heartbeat_due = False
            desired = record_after_failure(
                facts, identity, now=now.wall, agent_version=self._agent_version, previous=live or {}
            )
        elif not inventory.devices and live is None:
            return Published(target="record", reason="NothingToWrite")
        else:
            heartbeat_due = self._heartbeat_due(live, now)
            desired = record_for(
                inventory,
                identity,
                now=now.wall,
                agent_version=self._agent_version,
                previous=live,
                extra_conditions=(labels_condition(labels),),
            )
        if live is not None and self._may_write_over(live, identity, now, asked=inventory is not None):
            desired = under_former_owner(desired, live, identity)
        published = apply_record(
            cluster, live, desired, heartbeat_due=heartbeat_due, undeclared=self._undeclared
        )
        if published.written:
            self._learn_undeclared(published)
            self._next_heartbeat = now.monotonic + self._heartbeat_seconds()
        return published

    def _may_write_over(self, live: Object, node: NodeIdentity, now: Instant, *, asked: bool) -> bool:
        """Tell whether the record of a former Node was not collected in time, or was written over already."""
        if not is_of_former_node(live, node):
            self._owner_gone_since = None
            return False
        if self._owner_gone_since is None:
            self._owner_gone_since = now.monotonic
        if live["spec"].get("nodeUID") == node.uid:
            return True
        return asked and now.monotonic - self._owner_gone_since >= COLLECTOR_SECONDS

    def _learn_undeclared(self, published: Published) -> None:
        """Remember what the installed definition does not know, and say so when it changes."""
        left_out = frozenset(published.left_out)
        if left_out - self._undeclared:
            fields = {"fields": " ".join(sorted(left_out)), "why": next(iter(published.left_out.values()))}
            LOG.warning("the record is published without some fields", extra=fields)
        self._undeclared = left_out

    def _heartbeat_due(self, live: Object | None, now: Instant) -> bool:
        """Tell whether the record must be renewed; the first look takes its age from what it says itself."""
        if self._next_heartbeat is None:
            rest = self._heartbeat_seconds() - _age_seconds(live, now.wall)
            self._next_heartbeat = now.monotonic + max(0.0, rest)
        return now.monotonic >= self._next_heartbeat


def _age_seconds(record: Object | None, now: datetime) -> float:
    observed = ((record or {}).get("spec") or {}).get("observedAt")
    if observed is None:
        return 0.0
    # A record from the future was written by a clock that was wrong; it counts as new.
    return max(0.0, (now - datetime.fromisoformat(observed)).total_seconds())
