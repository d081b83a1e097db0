"""The controller's part for inference pools: hears what changed, asks endpoints that are due, labels pods that lack it.

Like the pass of classes it waits for nothing and knows no thread. Only the leader asks and writes, only in namespaces
that opted in, and only pods that a pool selects.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agent.cluster import Cluster
from agent.core.cluster_views import RecordView
from agent.core.pools.engines import EngineTable
from agent.core.pools.hardware import PodHardware, hardware_of
from agent.core.pools.labels import contradiction_events, pod_plans
from agent.core.pools.membership import members_of
from agent.core.pools.metrics import PoolsReport
from agent.core.pools.names import PoolKeys
from agent.core.pools.report import Look, PoolReport, endpoint_ports, pool_report
from agent.core.pools.serving import Refusal, Serving
from agent.core.pools.views import OptIn, PoolPod, PoolView, pool_pod_view
from agent.inventory_pass import Source
from agent.pod_writer import PodWriter
from agent.pools_asking import EndpointReader, Target, looks_at, targets_of

_CLOSED = OptIn()
_BATCH = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSources:
    """What the pass hears of."""

    pools: Source[PoolView]
    namespaces: Source[OptIn]
    pods: Source[PoolPod]
    records: Callable[[], Mapping[str, RecordView]]
    """The records as they are now, by the name of their Node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTimes:
    """Seconds."""

    between_asks: float = 60.0
    """Of one endpoint; more where there are many, so that asking stays a small part of the controller's work."""
    per_endpoint: float = 0.05
    first_retry: float = 5.0
    asking_per_turn: float = 5.0
    """A turn asks no further batch after this, so that writes and reports do not wait for hundreds of silent pods."""
    writing_per_turn: float = 5.0
    between_reviews: float = 10.0


@dataclass(slots=True)
class _Asked:
    """When an endpoint is asked again, and how often it failed in a row."""

    due: float
    failures: int = 0
    ready: bool = False


class PoolsPass:
    """The pools of one replica."""

    def __init__(
        self,
        cluster: Cluster,
        sources: PoolSources,
        reader: EndpointReader,
        *,
        table: EngineTable,
        keys: PoolKeys,
        now: Callable[[], datetime],
        clock: Callable[[], float],
        leads: Callable[[], bool] = lambda: True,
        times: PoolTimes = PoolTimes(),
    ) -> None:
        """`now` is the wall clock, `clock` a monotonic one; `leads` is asked before each request."""
        self._writer = PodWriter(cluster, keys, clock=clock)
        self._sources = sources
        self._reader = reader
        self._table = table
        self._keys = keys
        self._now = now
        self._clock = clock
        self._leads = leads
        self._times = times
        self._pools: dict[str, PoolView] = {}
        self._opted: dict[str, OptIn] = {}
        self._pods: dict[str, PoolPod] = {}
        self._looks: dict[tuple[str, int], Look] = {}
        self._asked: dict[tuple[str, int], _Asked] = {}
        self._outcomes: Counter[str] = Counter()
        self._report = PoolsReport()

    @property
    def namespaces(self) -> frozenset[str]:
        """Return the namespaces that hold a pool."""
        return frozenset(pool.namespace for pool in self._pools.values())

    def report(self) -> PoolsReport:
        """Return how things stood after the last turn. May be called from any thread."""
        return self._report

    def turn(self) -> float:
        """Do what can be done now; return the seconds after which there may be more without any change."""
        self._take_in()
        leading = self._leads()
        if self._sources.pools.absent or not leading or not self._is_complete():
            self._present((), leading=leading)
            return 1.0 if self._pools else self._times.between_reviews
        reports = self._reports()
        self._present(reports, leading=True)
        asked, waiting = self._ask(reports)
        if asked:
            reports = self._reports()
            self._present(reports, leading=True)
        done = self._write(reports, waiting)
        self._present(reports, leading=True)
        return self._until_next() if done else 0.0

    def _take_in(self) -> None:
        _keep(self._pools, self._sources.pools.drain())
        _keep(self._opted, self._sources.namespaces.drain())
        _keep(self._pods, self._sources.pods.drain())

    def _is_complete(self) -> bool:
        sources = self._sources
        if not self._pools:
            return sources.pools.complete
        return sources.pools.complete and sources.namespaces.complete and sources.pods.complete

    def _reports(self) -> tuple[PoolReport, ...]:
        pools = [self._pools[key] for key in sorted(self._pools)]
        members = members_of(pools, self._pods.values())
        records = self._sources.records()
        hardware: dict[str, PodHardware] = {}

        def runs_on(pod: PoolPod) -> PodHardware:
            if pod.uid not in hardware:
                hardware[pod.uid] = hardware_of(pod, records.get(pod.node))
            return hardware[pod.uid]

        return tuple(
            pool_report(
                pool,
                ((pod, runs_on(pod)) for pod in members[pool.key]),
                self._looks,
                opt_in=self._opted.get(pool.namespace, _CLOSED),
                table=self._table,
                keys=self._keys,
            )
            for pool in pools
        )

    def _present(self, reports: tuple[PoolReport, ...], *, leading: bool) -> None:
        self._report = PoolsReport(
            installed=not self._sources.pools.absent,
            leading=leading,
            pools=reports,
            asked=dict(self._outcomes),
            writes=dict(self._writer.writes),
            failures=dict(self._writer.failures),
            problems=self._writer.problems,
        )

    # Asking

    def _ask(self, reports: Iterable[PoolReport]) -> tuple[bool, frozenset[str]]:
        """Ask the endpoints that are due; tell whether any was, and the pods that have never been asked so far."""
        targets = targets_of(
            (endpoint.pod, endpoint_ports(report.pool, endpoint.pod))
            for report in reports
            if report.opt_in.ask
            for endpoint in report.endpoints
        )
        self._forget({target.key for target in targets})
        due = sorted(
            (target for target in targets if self._is_due(target)), key=lambda one: self._asked[one.key].due
        )
        interval = max(self._times.between_asks, len(targets) * self._times.per_endpoint)
        until = self._clock() + self._times.asking_per_turn
        for start in range(0, len(due), _BATCH):
            if not self._leads() or (start and self._clock() > until):
                break
            for target, look in looks_at(due[start : start + _BATCH], self._reader, self._table):
                self._note_look(target, look, interval)
        waiting = frozenset(target.pod.uid for target in due if target.key not in self._looks)
        return bool(due), waiting

    def _is_due(self, target: Target) -> bool:
        asked = self._asked.setdefault(target.key, _Asked(due=self._clock()))
        if target.pod.ready and not asked.ready:
            asked.due = min(asked.due, self._clock())
        asked.ready = target.pod.ready
        return asked.due <= self._clock()

    def _note_look(self, target: Target, look: Look, interval: float) -> None:
        asked = self._asked[target.key]
        self._outcomes[look.serving.word if isinstance(look.serving, Refusal) else "ok"] += 1
        if isinstance(look.serving, Refusal):
            asked.failures += 1
            pause = min(self._times.first_retry * 2 ** (asked.failures - 1), interval)
            # A server that misses one answer is not another server.
            if asked.failures > 2 or not self._knows(target):
                self._looks[target.key] = look
        else:
            asked.failures, pause = 0, interval
            self._looks[target.key] = look
        asked.due = self._clock() + pause * random.uniform(0.75, 1.25)  # noqa: S311 - no secret

    def _knows(self, target: Target) -> bool:
        held = self._looks.get(target.key)
        return held is not None and isinstance(held.serving, Serving)

    def _forget(self, living: set[tuple[str, int]]) -> None:
        for key in self._asked.keys() - living:
            del self._asked[key]
            self._looks.pop(key, None)

    # Writing

    def _write(self, reports: tuple[PoolReport, ...], waiting: frozenset[str]) -> bool:
        """Write what is due; tell whether all was. Pods that wait to be asked are written once they were."""
        until = self._clock() + self._times.writing_per_turn
        for plan in pod_plans(reports, self._keys):
            if not self._leads() or self._clock() > until:
                return False
            live = None if plan.pod.uid in waiting else self._writer.label(plan)
            if live is not None:
                # The watch may bring it later than the next look.
                view = pool_pod_view(live, keys=self._keys, table=self._table)
                _keep(self._pods, {plan.pod.key: view})
        for event in contradiction_events(reports, now=self._now()):
            if not self._leads():
                return False
            self._writer.tell(event)
        self._writer.forget(living={pod.uid for pod in self._pods.values()}, opted=frozenset(self._opted))
        return not waiting

    def _until_next(self) -> float:
        now = self._clock()
        waiting = [asked.due - now for asked in self._asked.values()]
        return max(0.0, min([*waiting, self._times.between_reviews]))


def _keep(held: dict[str, Any], changed: Mapping[str, Any | None]) -> None:
    for key, view in changed.items():
        if view is None:
            held.pop(key, None)
        else:
            held[key] = view
