"""The controller's threads around its turns: one a watch, one for the Lease, one that folds and writes."""

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Protocol

from agent.cluster import ACCELERATOR_CLASSES, ACCELERATOR_NODES, NODES, PODS, Cluster, Object
from agent.core.class_spec import ClassOptions
from agent.core.cluster_views import RecordView, node_view, pod_view, record_view
from agent.core.fleet_report import InventoryReport
from agent.core.pools.metrics import PoolsReport
from agent.edges.watching import Reflector
from agent.inventory_pass import InventoryPass, InventoryTimes, Sources
from agent.pools_process import PoolsProcess

LOG = logging.getLogger(__name__)

LEASE_NAME = "accelerator-inventory"
STOP_SECONDS = 2.0
LONGEST_REST_SECONDS = 10.0


class Candidate(Protocol):
    """One replica's part in the election."""

    def leads(self) -> bool:
        """Tell whether this replica may write now."""
        ...

    def run(self, stop: threading.Event) -> None:
        """Take part until `stop` is set."""
        ...


class MakePools(Protocol):
    """Makes the part of the controller that looks after inference pools."""

    def __call__(
        self,
        *,
        records: Callable[[], Mapping[str, RecordView]],
        leads: Callable[[], bool],
        stop: threading.Event,
    ) -> PoolsProcess:
        """Give it the records that are kept here, whether this replica leads, and when to end."""
        ...


class InventoryProcess:
    """Runs the controller until it is stopped. `election` is `None` where nobody else could write."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        watched: Cluster,
        options: ClassOptions,
        times: InventoryTimes,
        now: Callable[[], datetime],
        clock: Callable[[], float],
        elect: Callable[[Callable[[], object]], Candidate] | None,
        pools: MakePools | None = None,
    ) -> None:
        """`watched` may be as patient as it likes; a request of `cluster` must end before a Lease could be lost over it.

        `elect` makes the candidate, given what to call when it begins or ceases to lead; without `pools` nobody looks
        after inference pools.
        """
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._clock = clock
        self._last_turn = clock()
        self._domain = options.domain
        self._pools: PoolsProcess | None = None
        records = Reflector(watched, ACCELERATOR_NODES, view=self._record_view, changed=self._wake.set)
        nodes = Reflector(watched, NODES, view=node_view, changed=self._wake.set)
        pods = Reflector(watched, PODS, view=pod_view, changed=self._wake.set)
        classes = Reflector(watched, ACCELERATOR_CLASSES, view=_whole, changed=self._wake.set)
        candidate = elect(self._rouse) if elect else None
        leads = candidate.leads if candidate else lambda: True
        self._pools = pools(records=records.views, leads=leads, stop=self._stop) if pools else None
        self._pass = InventoryPass(
            cluster,
            Sources(records=records, nodes=nodes, pods=pods, classes=classes),
            options=options,
            now=now,
            clock=clock,
            leads=leads,
            times=times,
        )
        bodies: dict[str, Callable[[], None]] = {
            "fold": self._turns,
            **{
                name: lambda watch=watch: watch.run(self._stop)  # type: ignore[misc]  # bound now, not later
                for name, watch in (
                    ("records", records),
                    ("nodes", nodes),
                    ("pods", pods),
                    ("classes", classes),
                )
            },
            **(self._pools.bodies() if self._pools else {}),
        }
        self._threads = [
            threading.Thread(target=body, name=name, daemon=True) for name, body in bodies.items()
        ]
        # Apart from the others: it gives the Lease back last, when nobody writes any more.
        self._election_over = threading.Event()
        self._election = candidate and threading.Thread(
            target=candidate.run, args=(self._election_over,), name="lease", daemon=True
        )

    def start(self) -> None:
        """Start all threads."""
        for thread in (*self._threads, *((self._election,) if self._election else ())):
            thread.start()

    def stop(self) -> None:
        """Stop to write, then give the Lease back; watches that hang are left to the process's end."""
        self._stop.set()
        self._rouse()
        fold = self._threads[0]
        fold.join(STOP_SECONDS)
        self._election_over.set()
        if self._election:
            self._election.join(STOP_SECONDS)

    def report(self) -> InventoryReport:
        """Return how things stand."""
        return self._pass.report()

    def pools_report(self) -> PoolsReport:
        """Return how things stand with inference pools."""
        return self._pools.report() if self._pools else PoolsReport()

    def seconds_since_turn(self) -> float:
        """Return how long ago the last turn ended, by the monotonic clock."""
        return self._clock() - self._last_turn

    def _rouse(self) -> None:
        self._wake.set()
        if self._pools:
            self._pools.wake()

    def _turns(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            rest = LONGEST_REST_SECONDS
            try:
                rest = min(self._pass.turn(), LONGEST_REST_SECONDS)
            except Exception:
                # The outermost line of a turn: a bug must not end the controller, and the next turn starts afresh.
                LOG.exception("a turn failed by a bug")
            self._last_turn = self._clock()
            self._wake.wait(max(rest, 0.05))

    def _record_view(self, record: Object) -> RecordView:
        return record_view(record, domain=self._domain)


def _whole(live: Object) -> Object:
    """Keep a class as it is: there are few, and all of one is needed to tell who owns what."""
    return live
