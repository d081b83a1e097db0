"""One pass on a node: probe, derive, publish, report."""

import dataclasses
import logging
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from agent.cluster import ACCELERATOR_NODES, NODES, Cluster, ClusterError, Forbidden, NotFound, Object
from agent.core.compat import gfd_labels
from agent.core.health import Instant, Track
from agent.core.inventory import (
    Inventory,
    Options,
    history_after,
    inventory_of,
)
from agent.core.keys import DEFAULT_DOMAIN
from agent.core.labels import labels_for
from agent.core.outcomes import NodeReport, Published, PublishTally
from agent.core.past import Gone, gone_after, remembered
from agent.core.recorded import facts_of, gone_of, history_of
from agent.core.release import driver_release_announced
from agent.node_labels import NodeLabels
from agent.node_record import NodeRecord
from probes.facts import NodeFacts

LOG = logging.getLogger(__name__)

RELEASED_PROBE_SECONDS = 150.0
"""Between probes while a driver upgrade is announced: unloading a driver wants a minute in which nobody opens it."""

# A storm of errors says no more than its first ones.
MAX_EVENTS_A_PASS = 1000


class Probe(Protocol):
    """Asks the hardware once; blocks no longer than its own deadline."""

    def __call__(self, cycle: int) -> NodeFacts:
        """Return what was found; `cycle` counts from 1."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePassOptions:
    """What an operator decides about one agent's passes."""

    node_name: str
    agent_version: str
    domain: str = DEFAULT_DOMAIN
    former_domains: tuple[str, ...] = ()
    compat_labels: tuple[str, ...] = ()
    heartbeat: timedelta = timedelta(minutes=15)
    allow_simulated: bool = False
    inventory: Options = dataclasses.field(default_factory=Options)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Live:
    """What the server holds of this node at the start of a pass."""

    node: Object
    record: Object | None
    record_refused: Published | None = None
    """Set where records may not be read, or are not known to the server: labels go on without them."""


class NodePass:
    """The passes of one agent and what they remember from one to the next.

    `cluster` is `None` where nothing is published. `jitter` returns a factor near 1 for the next heartbeat.
    """

    def __init__(
        self,
        probe: Probe,
        cluster: Cluster | None,
        options: NodePassOptions,
        *,
        now: Callable[[], Instant],
        jitter: Callable[[], float],
    ) -> None:
        self._probe = probe
        self._cluster = cluster
        self._options = options
        self._now = now
        self._history: dict[str, Track] = {}
        self._last_facts: NodeFacts | None = None
        self._gone: tuple[Gone, ...] = ()
        self._probed_at = float("-inf")
        self._record_read = False
        self._labels = NodeLabels((options.domain, *options.former_domains))
        self._record = NodeRecord(
            agent_version=options.agent_version,
            heartbeat_seconds=lambda: options.heartbeat.total_seconds() * jitter(),
        )
        self._heard: deque[tuple[str, int]] = deque(maxlen=MAX_EVENTS_A_PASS)
        self.release_announced = False
        """Whether the Node said, when it was last read, that its driver is about to be changed."""
        self.report = NodeReport()

    def run(self) -> NodeReport:
        """Make one pass and return the report; only a bug raises."""
        if self._still_released():
            self.report = replace(self.report, passes=self.report.passes + 1)
            return self.report
        facts = self._probe(self.report.passes + 1)
        self._probed_at = self._now().monotonic
        self._log_failure(facts)
        self.report = replace(self.report, facts=facts, passes=self.report.passes + 1)
        live = self._read(self._cluster, facts) if self._cluster is not None else None
        self._take(facts)
        if self._cluster is not None and live is not None:
            self._publish(self._cluster, facts, live)
        return self.report

    def hear(self, device: str, xid: int) -> None:
        """Take an Xid event, to be counted by the next pass; may be called from any thread."""
        self._heard.append((device, xid))

    def _still_released(self) -> bool:
        """Tell whether the driver is given time without a probe, after one more look at what the Node announces."""
        if not self._is_resting() or self._cluster is None or self.report.facts is None:
            return False
        self._read(self._cluster, self.report.facts)
        return self._is_resting()

    def _is_resting(self) -> bool:
        since = self._now().monotonic - self._probed_at
        return self.release_announced and since < RELEASED_PROBE_SECONDS

    def _take(self, facts: NodeFacts) -> None:
        """Learn from a probe that could ask; one that could not changes nothing but the report."""
        if not facts.asked:
            return
        now = self._now()
        facts = remembered(facts, self._last_facts)
        self._gone = gone_after(facts, self._last_facts, self._gone, now.wall)
        self._history = history_after(facts, self._history, now, self._events())
        self._last_facts = facts
        inventory = inventory_of(
            facts, options=self._options.inventory, history=self._history, gone=self._gone
        )
        self._log_changes(inventory)
        self.report = replace(
            self.report,
            inventory=inventory,
            inventory_monotonic=now.monotonic,
            inventory_wall=now.wall,
        )

    def _read(self, cluster: Cluster, facts: NodeFacts) -> _Live | None:
        """Return the Node and its record as the server holds them, `None` where nothing can or may be published."""
        if facts.simulated and not self._options.allow_simulated:
            message = "facts of fake hardware are not published without --allow-simulated"
            self._note(Published(target="labels", reason="SimulatedNotAllowed", message=message))
            return None
        record, refused = None, None
        try:
            node = cluster.get(NODES, self._options.node_name, cached=True)
            try:
                record = cluster.get(ACCELERATOR_NODES, self._options.node_name, cached=True)
            except (Forbidden, NotFound) as error:
                refused = Published(target="record", reason=type(error).__name__, message=str(error))
        except ClusterError as error:
            self._note(Published(target="labels", reason=type(error).__name__, message=str(error)))
            return None
        if node is None:
            message = f"there is no Node {self._options.node_name!r}; node_name must be the Node's name, not the host's"
            self._note(Published(target="labels", reason="NodeNotFound", message=message))
            return None
        self.release_announced = driver_release_announced(node, domain=self._options.domain)
        if refused is None:
            self._remember_record(record)
        return _Live(node=node, record=record, record_refused=refused)

    def _events(self) -> list[tuple[str, int]]:
        """Return the Xid events since the last pass, and count them in the report."""
        events = [self._heard.popleft() for _ in range(len(self._heard))]
        if events:
            counts = Counter(self.report.xid_errors)
            counts.update(events)
            self.report = replace(self.report, xid_errors=dict(counts))
        return events

    def _publish(self, cluster: Cluster, facts: NodeFacts, live: _Live) -> None:
        labels = self._publish_labels(cluster, live.node)
        record = live.record_refused or self._record.publish(
            cluster,
            node=live.node,
            live=live.record,
            facts=facts,
            # What a probe before has found is in the record already.
            inventory=self.report.inventory if facts.asked else None,
            labels=labels,
            now=self._now(),
        )
        self._note(labels, record)

    def _publish_labels(self, cluster: Cluster, node: Object) -> Published:
        """Apply the labels of the last probe that could ask; before the first there is nothing to say."""
        if self.report.inventory is None:
            return Published(target="labels", reason="NothingToWrite")
        desired = self._desired_labels(self.report.inventory)
        return self._labels.publish(cluster, node, desired, monotonic=self._now().monotonic)

    def _desired_labels(self, inventory: Inventory) -> dict[str, str]:
        labels = labels_for(inventory, domain=self._options.domain)
        if "gfd" in self._options.compat_labels:
            labels |= gfd_labels(inventory)
        return labels

    def _remember_record(self, record: Object | None) -> None:
        """Take the devices of the record that was there at the start as the past before this process."""
        if self._record_read:
            return
        self._record_read = True
        if record is not None:
            past = facts_of(record)
            self._gone = self._gone or gone_of(record)
            self._history = history_of(record) | self._history
            self._last_facts = past if self._last_facts is None else remembered(self._last_facts, past)

    def _note(self, *published: Published) -> None:
        tallies = dict(self.report.tallies)
        before = {outcome.target: outcome.reason for outcome in self.report.published}
        for outcome in published:
            tallies[outcome.target] = _counted(tallies.get(outcome.target), outcome, self._now().wall)
            if outcome.failed:
                fields = {"target": outcome.target, "reason": outcome.reason, "why": outcome.message}
                told = before.get(outcome.target) == outcome.reason
                LOG.log(logging.DEBUG if told else logging.WARNING, "not published", extra=fields)
            elif outcome.written:
                LOG.info("published", extra={"target": outcome.target, "node": self._options.node_name})
        self.report = replace(self.report, published=published, tallies=tallies)

    def _log_failure(self, facts: NodeFacts) -> None:
        """Warn of a probe that could not ask, once for as long as the reason stays the same."""
        if facts.asked:
            return
        told = self.report.facts is not None and self.report.facts.reason == facts.reason
        fields = {"verdict": facts.verdict, "reason": facts.reason, "why": facts.message}
        LOG.log(logging.DEBUG if told else logging.WARNING, "probe failed", extra=fields)

    def _log_changes(self, inventory: Inventory) -> None:
        before = (
            {device.key: device.assessment.state for device in self.report.inventory.devices}
            if (self.report.inventory)
            else {}
        )
        for device in inventory.devices:
            if before.get(device.key, "ok") != device.assessment.state:
                fields: dict[str, Any] = {
                    "device": device.key,
                    "state": device.assessment.state,
                    "reasons": ",".join(device.assessment.reasons),
                }
                LOG.warning("device changed state", extra=fields)


def _counted(tally: PublishTally | None, outcome: Published, now: datetime) -> PublishTally:
    tally = tally or PublishTally()
    if outcome.failed:
        failures = {**tally.failures, outcome.reason: tally.failures.get(outcome.reason, 0) + 1}
        return replace(tally, failures=failures)
    return replace(tally, writes=tally.writes + outcome.written, last_success=now)
