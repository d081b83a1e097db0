"""Writes on the pods of pools: labels by server-side apply, Events by creation, and what to do when that is refused."""

import logging
from collections import Counter
from collections.abc import Callable, Set

from agent.cluster import EVENTS, PODS, Cluster, ClusterError, Conflict, Forbidden, Object
from agent.core.pools.labels import PodPlan
from agent.core.pools.names import POOLS_MANAGER, ROLE, PoolKeys

_log = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS = 5.0
_AFTER_A_MISSING_RIGHT_SECONDS = 60.0
_LONGEST_BACKOFF_SECONDS = 300.0
_MAX_TOLD = 10_000


class PodWriter:
    """Counts what it writes, and lets a pod or a namespace rest that refused it."""

    def __init__(self, cluster: Cluster, keys: PoolKeys, *, clock: Callable[[], float]) -> None:
        self.writes: Counter[str] = Counter()
        """By target: `pod`, `pod-event`."""
        self.failures: Counter[tuple[str, str]] = Counter()
        """(target, reason) → how often."""
        self._cluster = cluster
        self._keys = keys
        self._clock = clock
        self._not_before: dict[str, tuple[float, int]] = {}
        self._told: set[str] = set()
        self._problems: dict[str, str] = {}

    @property
    def problems(self) -> tuple[str, ...]:
        """Return what somebody has to mend, by namespace."""
        return tuple(self._problems[key] for key in sorted(self._problems))

    def label(self, plan: PodPlan) -> Object | None:
        """Apply a plan and return the pod as it is then; `None` where it is not its time, or it was refused."""
        pod = plan.pod
        if not self._may_try(pod.namespace) or not self._may_try(pod.uid):
            return None
        try:
            live = self._cluster.apply(PODS, plan.body, manager=POOLS_MANAGER)
        except Forbidden as error:
            if not error.denied:
                self._note_missing_right(pod.namespace, error)
            self._refused(pod.uid if error.denied else pod.namespace, "pod", error)
            return None
        except ClusterError as error:
            # As a rule gone, made anew, or somebody else's label by now: the watch brings what is true.
            self._refused(pod.uid, "pod", error)
            return None
        self.writes["pod"] += 1
        self._not_before.pop(pod.uid, None)
        self._not_before.pop(pod.namespace, None)
        self._problems.pop(pod.namespace, None)
        _log.info("pod %s labelled: %s", pod.key, " ".join(f"{k}={v}" for k, v in plan.labels.items()))
        return live

    def tell(self, event: Object) -> None:
        """Create an Event, once."""
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
            # An Event is for people; the state that it tells of stands in the metrics and the report.
            self.failures[("pod-event", type(error).__name__)] += 1
            _log.warning("event %s was not written: %s", event["reason"], error)
            return
        else:
            self.writes["pod-event"] += 1
            _log.warning("pod %s/%s: %s", namespace, event["involvedObject"]["name"], event["message"])
        if len(self._told) >= _MAX_TOLD:
            self._told.clear()
        self._told.add(name)

    def forget(self, *, living: Set[str], opted: Set[str]) -> None:
        """Drop what is known of pods (by uid) and namespaces that are no more."""
        for key in self._not_before.keys() - living - opted:
            del self._not_before[key]
        for namespace in self._problems.keys() - opted:
            del self._problems[namespace]

    def _may_try(self, key: str) -> bool:
        return self._not_before.get(key, (0.0, 0))[0] <= self._clock()

    def _refused(self, key: str, target: str, error: ClusterError) -> None:
        self.failures[(target, type(error).__name__)] += 1
        failures = self._not_before.get(key, (0.0, 0))[1] + 1
        first = _AFTER_A_MISSING_RIGHT_SECONDS if isinstance(error, Forbidden) else _FIRST_RETRY_SECONDS
        pause = min(first * 2 ** (failures - 1), _LONGEST_BACKOFF_SECONDS)
        self._not_before[key] = (self._clock() + pause, failures)
        _log.info("%s: not written, try %d: %s", key, failures, error)

    def _note_missing_right(self, namespace: str, error: ClusterError) -> None:
        if namespace in self._problems:
            return
        self._problems[namespace] = (
            f"the namespace {namespace} has the label {self._keys.opt_in}, and its pods may not be labelled: "
            f"bind the ClusterRole {ROLE} there by a RoleBinding ({error})"
        )
        _log.warning("%s", self._problems[namespace])
