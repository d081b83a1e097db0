"""The threads around the pools' turns: watches that run only once there is a pool, and one that asks and writes."""

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import datetime

from agent.cluster import INFERENCE_POOLS, NAMESPACES, PODS, Cluster, Object
from agent.core.cluster_views import RecordView
from agent.core.pools.engines import EngineTable
from agent.core.pools.metrics import PoolsReport
from agent.core.pools.names import PoolKeys
from agent.core.pools.views import OptIn, PoolPod, opt_in_view, pool_pod_view, pool_view
from agent.edges.watching import Reflector
from agent.pools_asking import EndpointReader
from agent.pools_pass import PoolSources, PoolsPass, PoolTimes

LOG = logging.getLogger(__name__)

LONGEST_REST_SECONDS = 10.0
SHORTEST_REST_SECONDS = 1.0
"""Pods come and go by the dozen: they are looked at together."""

_POD_WATCH_SECONDS = 30.0
"""Short, so that the pods of a namespace that got its first pool are heard of soon."""


class PoolsProcess:
    """The pools' part of the controller; its bodies run until the event that they were given is set."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        watched: Cluster,
        reader: EndpointReader,
        records: Callable[[], Mapping[str, RecordView]],
        table: EngineTable,
        keys: PoolKeys,
        now: Callable[[], datetime],
        clock: Callable[[], float],
        leads: Callable[[], bool],
        stop: threading.Event,
        times: PoolTimes | None = None,
    ) -> None:
        """Watch nothing yet; `records` are those that the controller of classes already keeps."""
        self._table = table
        self._keys = keys
        self._stop = stop
        self._wake = threading.Event()
        self._needed = threading.Event()
        self._namespaces: frozenset[str] = frozenset()
        self._pools = Reflector(
            watched, INFERENCE_POOLS, view=pool_view, changed=self._wake.set, expected=False
        )
        self._opted = Reflector(watched, NAMESPACES, view=self._opt_in, changed=self._wake.set)
        self._pods = Reflector(
            watched,
            PODS,
            view=self._pod,
            changed=self._wake.set,
            watch_seconds=_POD_WATCH_SECONDS,
        )
        sources = PoolSources(pools=self._pools, namespaces=self._opted, pods=self._pods, records=records)
        self._pass = PoolsPass(
            cluster,
            sources,
            reader,
            table=table,
            keys=keys,
            now=now,
            clock=clock,
            leads=lambda: not stop.is_set() and leads(),
            times=times or PoolTimes(),
        )

    def bodies(self) -> dict[str, Callable[[], None]]:
        """Return what each thread runs, by the thread's name."""
        return {
            "pools": self._turns,
            "inferencepools": lambda: self._pools.run(self._stop),
            "namespaces": lambda: self._run_when_needed(self._opted),
            "pool-pods": lambda: self._run_when_needed(self._pods),
        }

    def wake(self) -> None:
        """Let all threads see that the stop event was set, or that this replica leads or ceases to."""
        self._wake.set()
        if self._stop.is_set():
            self._needed.set()

    def report(self) -> PoolsReport:
        """Return how things stand."""
        return self._pass.report()

    def _turns(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            rest = LONGEST_REST_SECONDS
            try:
                rest = self._pass.turn()
            except Exception:
                # The outermost line of a turn: a bug must not end the controller, and the next turn starts afresh.
                LOG.exception("a turn of the pools failed by a bug")
            self._follow()
            self._stop.wait(SHORTEST_REST_SECONDS)
            self._wake.wait(max(min(rest, LONGEST_REST_SECONDS) - SHORTEST_REST_SECONDS, 0.0))

    def _follow(self) -> None:
        """Hear of the pods of every namespace that holds a pool."""
        found = self._pass.namespaces
        if found - self._namespaces:
            self._namespaces |= found
            if self._needed.is_set():
                self._pods.renew()
            self._needed.set()
            # What was heard before the watch knew of these namespaces is not all there is.
            self._wake.set()

    def _run_when_needed(self, watch: Reflector[OptIn] | Reflector[PoolPod]) -> None:
        self._needed.wait()
        watch.run(self._stop)

    def _opt_in(self, namespace: Object) -> OptIn | None:
        return opt_in_view(namespace, keys=self._keys)

    def _pod(self, pod: Object) -> PoolPod | None:
        if pod["metadata"]["namespace"] not in self._namespaces:
            return None
        return pool_pod_view(pod, keys=self._keys, table=self._table)
