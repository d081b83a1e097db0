"""The controller's part for inference pools: hears what changed, asks endpoints that are due, labels pods that lack it.

Like the pass of classes it waits for nothing and knows no thread. Only the leader asks and writes, only in namespaces
that opted in, and only pods that a pool selects.
"""

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agent.cluster import EVENTS, PODS, Cluster, ClusterError, Conflict, Forbidden, Invalid, NotFound, Object
from agent.core.cluster_views import RecordView
from agent.core.pools.engines import EngineTable
from agent.core.pools.hardware import PodHardware, hardware_of
from agent.core.pools.labels import PodPlan, contradiction_events, pod_plans
from agent.core.pools.membership import members_of
from agent.core.pools.metrics import PoolsReport
from agent.core.pools.names import POOLS_MANAGER, ROLE, PoolKeys
from agent.core.pools.report import Look, PoolReport, endpoint_ports, pool_report
from agent.core.pools.serving import Refusal, Serving
from agent.core.pools.views import OptIn, PoolPod, PoolView, pool_pod_view
from agent.inventory_pass import Source
from agent.pools_asking import EndpointReader, Target, looks_at, targets_of

_log = logging.getLogger(__name__)

_CLOSED = OptIn()
_BATCH = 32
_MAX_TOLD = 10_000


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
    after_refused_write: float = 60.0
    longest_backoff: float = 300.0
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
        self._cluster = cluster
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
        self._writes: Counter[str] = Counter()
        self._failures: Counter[tuple[str, str]] = Counter()
        self._not_before: dict[str, tuple[float, int]] = {}
        self._told: set[str] = set()
        self._problems: dict[str, str] = {}
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
        self._write(reports)
        if self._ask(reports):
            reports = self._reports()
            self._write(reports)
        self._present(reports, leading=True)
        return self._until_next()

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
            writes=dict(self._writes),
            failures=dict(self._failures),
            problems=tuple(self._problems[key] for key in sorted(self._problems)),
        )

    # Asking

    def _ask(self, reports: Iterable[PoolReport]) -> bool:
        """Ask the endpoints that are due; tell whether any was."""
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
        return bool(due)

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

    def _write(self, reports: tuple[PoolReport, ...]) -> None:
        for plan in pod_plans(reports, self._keys):
            if not self._leads():
                return
            if self._may_try(plan.pod.namespace) and self._may_try(plan.pod.uid):
                self._apply(plan)
        for event in contradiction_events(reports, now=self._now()):
            if not self._leads():
                return
            self._tell(event)
        living = {pod.uid for pod in self._pods.values()} | self._opted.keys()
        for key in self._not_before.keys() - living:
            del self._not_before[key]
        for namespace in self._problems.keys() - self._opted.keys():
            del self._problems[namespace]

    def _apply(self, plan: PodPlan) -> None:
        pod = plan.pod
        try:
            live = self._cluster.apply(PODS, plan.body, manager=POOLS_MANAGER)
        except (Conflict, Invalid, NotFound) as error:
            # Gone, made anew, or somebody else's label by now: the watch brings what is true.
            self._refused(pod.uid, "pod", error)
        except Forbidden as error:
            self._note_missing_right(pod.namespace, error)
            self._refused(pod.uid if error.denied else pod.namespace, "pod", error)
        except ClusterError as error:
            self._refused(pod.uid, "pod", error)
        else:
            self._writes["pod"] += 1
            self._not_before.pop(pod.uid, None)
            self._not_before.pop(pod.namespace, None)
            self._problems.pop(pod.namespace, None)
            # The watch may bring it later than the next look.
            _keep(self._pods, {pod.key: pool_pod_view(live, keys=self._keys, table=self._table)})
            _log.info("pod %s labelled: %s", pod.key, " ".join(f"{k}={v}" for k, v in plan.labels.items()))

    def _tell(self, event: Object) -> None:
        name, namespace = event["metadata"]["name"], event["metadata"]["namespace"]
        if name in self._told or not self._may_try(namespace):
            return
        try:
            self._cluster.create(EVENTS, event, manager=POOLS_MANAGER)
        except Conflict:
            pass  # told before a restart, or by the former leader
        except Forbidden as error:
            self._note_missing_right(namespace, error)
            self._refused(namespace, "pod-event", error)
            return
        except ClusterError as error:
            self._failures[("pod-event", type(error).__name__)] += 1
            _log.warning("event %s was not written: %s", event["reason"], error)
            return
        else:
            self._writes["pod-event"] += 1
            _log.warning("pod %s/%s: %s", namespace, event["involvedObject"]["name"], event["message"])
        if len(self._told) >= _MAX_TOLD:
            self._told.clear()
        self._told.add(name)

    def _may_try(self, key: str) -> bool:
        return self._not_before.get(key, (0.0, 0))[0] <= self._clock()

    def _refused(self, key: str, target: str, error: ClusterError) -> None:
        self._failures[(target, type(error).__name__)] += 1
        failures = self._not_before.get(key, (0.0, 0))[1] + 1
        first = self._times.after_refused_write if isinstance(error, Forbidden) else self._times.first_retry
        self._pause(key, min(first * 2 ** (failures - 1), self._times.longest_backoff), failures=failures)
        _log.info("%s: not written, try %d: %s", key, failures, error)

    def _pause(self, key: str, seconds: float, *, failures: int) -> None:
        self._not_before[key] = (self._clock() + seconds, failures)

    def _note_missing_right(self, namespace: str, error: ClusterError) -> None:
        if namespace in self._problems:
            return
        self._problems[namespace] = (
            f"the namespace {namespace} has the label {self._keys.opt_in}, and its pods may not be labelled: "
            f"bind the ClusterRole {ROLE} there by a RoleBinding ({error})"
        )
        _log.warning("%s", self._problems[namespace])

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
