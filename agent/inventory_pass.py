"""The controller: takes in what the watches heard, folds what changed, writes the classes that are due.

`turn()` does all that can be done now and says how long nothing will be due. It never waits and knows no thread, so
that a test can lead it through any order of events.
"""

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar

from agent.class_writer import ClassWriter, NotLeadingError, Target
from agent.cluster import CRDS, Cluster, ClusterError, Forbidden, Object
from agent.core.ages import Ages, aged
from agent.core.class_spec import ClassOptions, adopted_class, is_ours
from agent.core.cluster_events import device_events, foreign_class_event
from agent.core.cluster_views import NodeView, PodView, RecordView
from agent.core.fleet import Fleet
from agent.core.fleet_report import InventoryReport
from agent.core.fold import ClassState

_log = logging.getLogger(__name__)

CLASS_DEFINITION = "acceleratorclasses.ome.io"
_MAX_PENDING_EVENTS = 1000

PODS_REFUSED_SECONDS = 60.0
"""For so long what was heard of Pods counts although they may not be read any more."""

T_co = TypeVar("T_co", covariant=True)


class Source(Protocol[T_co]):
    """What keeps one kind of object up to date."""

    @property
    def complete(self) -> bool:
        """Tell whether everything was heard once, so that what is absent is truly absent."""
        ...

    @property
    def absent(self) -> bool:
        """Tell whether the cluster does not have this kind of object at all."""
        ...

    @property
    def problem(self) -> ClusterError | None:
        """Return why nothing new is heard at present."""
        ...

    def drain(self) -> Mapping[str, T_co | None]:
        """Return what changed since the last call, by name; `None` is gone."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The four kinds of object that the controller watches."""

    records: Source[RecordView]
    nodes: Source[NodeView]
    pods: Source[PodView]
    classes: Source[Object]


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryTimes:
    """Seconds."""

    stale_after: float = 2400.0
    """A record that was not renewed for so long is stale."""
    between_writes: float = 5.0
    """Of one class: the first change is written at once, the next ones together after this."""
    between_reviews: float = 30.0
    """Everything is compared again: records grow stale, other writers come and go."""
    longest_backoff: float = 300.0
    between_looks_at_definition: float = 600.0
    """Of classes: which of its variants is installed; after a failed write it is looked at again at once."""


class InventoryPass:
    """The controller of one replica."""

    def __init__(
        self,
        cluster: Cluster,
        sources: Sources,
        *,
        options: ClassOptions,
        now: Callable[[], datetime],
        clock: Callable[[], float],
        leads: Callable[[], bool] = lambda: True,
        times: InventoryTimes = InventoryTimes(),
    ) -> None:
        """`now` is the wall clock, `clock` a monotonic one; `leads` is asked before each write."""
        self._cluster = cluster
        self._sources = sources
        self._options = options
        self._now = now
        self._clock = clock
        self._leads = leads
        self._times = times
        self._fleet = Fleet()
        self._ages = Ages()
        self._was_complete = False
        self._pods_refused_at: float | None = None
        self._classes: dict[str, Object] = {}
        self._writes: Counter[str] = Counter()
        self._failures: Counter[tuple[str, str]] = Counter()
        self._failing: dict[str, tuple[int, str]] = {}
        self._not_before: dict[str, float] = {}
        self._dirty: set[str] = set()
        self._events: list[Object] = []
        self._foreign: set[str] = set()
        self._told_foreign: set[str] = set()
        self._states: dict[str, ClassState] = {}
        self._next_review = 0.0
        self._led = False
        self._definition_until = float("-inf")
        self._fold_seconds = 0.0
        self._last_success: datetime | None = None
        self._unreadable: set[str] = set()
        self._stale_records = 0
        self._report = InventoryReport()
        self._writer = ClassWriter(
            cluster, options, now=now, may_write=leads, wrote=lambda target: self._writes.update((target,))
        )

    def turn(self) -> float:
        """Do what can be done now; return the seconds after which there may be more without any change."""
        try:
            return self._turn()
        finally:
            self._report = self._present_report()

    def report(self) -> InventoryReport:
        """Return how things stood after the last turn. May be called from any thread."""
        return self._report

    def _turn(self) -> float:
        self._take_in()
        if not self._is_complete():
            return 1.0
        self._was_complete = True
        self._review()
        if not self._leads():
            self._led = False
            self._events.clear()
            return 1.0
        if not self._led:
            # Whoever led before may have been stopped between any two writes.
            self._led = True
            self._dirty |= self._all_objects()
        try:
            self._tell_events()
            for name in () if self._sources.classes.absent else self._due():
                self._bring(name)
        except NotLeadingError:
            return 0.0
        return self._until_next()

    def _present_report(self) -> InventoryReport:
        return InventoryReport(
            leading=self._led,
            complete=self._is_complete(),
            classes_installed=not self._sources.classes.absent,
            records=len(self._fleet.records),
            stale_records=self._stale_records,
            unreadable_records=tuple(sorted(self._unreadable)),
            classes=tuple(self._states[name] for name in sorted(self._states)),
            foreign=tuple(sorted(self._foreign)),
            fold_seconds=self._fold_seconds,
            writes=dict(self._writes),
            failures=dict(self._failures),
            problems=tuple(self._problems()),
            last_success=self._last_success,
        )

    def _take_in(self) -> None:
        for name, node in self._sources.nodes.drain().items():
            self._fleet.put_node(name, node)
        for key, pod in self._sources.pods.drain().items():
            self._fleet.put_pod(key, pod)
        self._take_in_records()
        for name, live in self._sources.classes.drain().items():
            self._take_in_class(name, live)
        self._fleet.pods_known = self._may_know_pods()
        adopters = self._adopters()
        for canonical in self._fleet.dirty:
            self._dirty.add(adopters.get(canonical, canonical))
        self._fleet.dirty.clear()

    def _may_know_pods(self) -> bool:
        """Tell whether what is held of Pods is true: a server that has just started refuses everybody for a moment."""
        if not isinstance(self._sources.pods.problem, Forbidden):
            self._pods_refused_at = None
            return True
        if self._pods_refused_at is None:
            self._pods_refused_at = self._clock()
        lasted = self._clock() - self._pods_refused_at
        return self._sources.pods.complete and lasted < PODS_REFUSED_SECONDS

    def _take_in_records(self) -> None:
        self._ages, records = aged(
            self._ages,
            self._sources.records.drain(),
            wall=self._now().timestamp(),
            monotonic=self._clock(),
            starting=not self._was_complete,
        )
        for name, record in records.items():
            before, node = self._fleet.records.get(name), self._fleet.nodes.get(name)
            if record is not None and node is not None and self._led:
                self._events += device_events(before, record, node, now=self._now())
            self._fleet.put_record(name, record)
            if record is not None and record.problem:
                self._unreadable.add(name)
                _log.warning("record %s cannot be read: %s", name, record.problem)
            else:
                self._unreadable.discard(name)
        # Told best effort: a flood of changes must not grow memory.
        del self._events[:-_MAX_PENDING_EVENTS]

    def _take_in_class(self, name: str, live: Object | None) -> None:
        before = self._classes.get(name)
        if live is None:
            self._classes.pop(name, None)
        else:
            self._classes[name] = live
        self._dirty.add(name)
        for one in (before, live):
            canonical = adopted_class(one, self._options) if one else None
            if canonical:
                self._dirty.add(canonical)

    def _is_complete(self) -> bool:
        sources = self._sources
        records = sources.records.complete and not sources.records.absent
        pods = sources.pods.complete or not self._fleet.pods_known
        classes = sources.classes.complete or sources.classes.absent
        return records and sources.nodes.complete and pods and classes

    def _review(self) -> None:
        if self._clock() < self._next_review:
            return
        self._next_review = self._clock() + self._times.between_reviews
        self._stale_records = self._fleet.stale_records(stale_before=self._stale_before())
        self._dirty |= self._all_objects()

    def _all_objects(self) -> set[str]:
        adopters = self._adopters()
        return {adopters.get(name, name) for name in self._fleet.class_names} | set(self._classes)

    def _adopters(self) -> dict[str, str]:
        """Return canonical class → the person's class that stands for it; the first by name where several do."""
        found: dict[str, str] = {}
        for name in sorted(self._classes):
            canonical = adopted_class(self._classes[name], self._options)
            if canonical and "deletionTimestamp" not in self._classes[name]["metadata"]:
                found.setdefault(canonical, name)
        return found

    def _due(self) -> Iterator[str]:
        now = self._clock()
        for name in sorted(self._dirty):
            if self._not_before.get(name, 0.0) <= now:
                self._dirty.discard(name)
                yield name

    def _until_next(self) -> float:
        now = self._clock()
        dirty = () if self._sources.classes.absent else self._dirty
        waiting = [self._not_before.get(name, 0.0) - now for name in dirty]
        return max(0.0, min([*waiting, self._next_review - now]))

    def _bring(self, name: str) -> None:
        target = self._target(name)
        if target is None:
            return
        self._learn_definition()
        cached = self._classes.get(name)
        others = [live for other, live in self._classes.items() if other != name]
        if not self._writer.difference(target, cached, others).is_some:
            self._failing.pop(name, None)
            return
        before = sum(self._writes.values())
        try:
            live = self._writer.bring(target, others)
        except ClusterError as error:
            self._note_failure(name, error)
            return
        except NotLeadingError:
            self._dirty.add(name)
            raise
        self._failing.pop(name, None)
        self._last_success = self._now()
        if live is not None:
            self._classes[name] = _newer(self._classes.get(name), live)
        if sum(self._writes.values()) > before:
            _log.info("class %s written: %d of %d usable", name, target.state.usable, target.state.total)
            self._not_before[name] = self._clock() + self._times.between_writes

    def _target(self, name: str) -> Target | None:
        """Return what is true of a class object, `None` where it is not ours to write."""
        live = self._classes.get(name)
        canonical = adopted_class(live, self._options) if live else None
        adopters = self._adopters()
        adopted = canonical is not None and adopters.get(canonical) == name
        state = self._state(canonical if adopted and canonical else name)
        if not adopted and adopters.get(name, name) != name:
            # A person's class stands for it: ours counts nothing any more.
            state = ClassState(name=name, content=None)
        if live is None:
            return None if state.content is None else Target(name=name, state=state)
        if "deletionTimestamp" in live["metadata"]:
            return None
        if not adopted and not is_ours(live, self._options):
            self._note_foreign(name, live, counted=state.content is not None)
            return None
        self._foreign.discard(name)
        return Target(name=name, state=state, adopted=adopted)

    def _state(self, name: str) -> ClassState:
        started = self._clock()
        state = self._fleet.state(name, stale_before=self._stale_before())
        self._fold_seconds = self._clock() - started
        if state.nodes or name in self._classes:
            self._states[name] = state
        else:
            self._states.pop(name, None)
        return state

    def _note_foreign(self, name: str, live: Object, *, counted: bool) -> None:
        if not counted:
            self._foreign.discard(name)
            return
        self._foreign.add(name)
        uid = live["metadata"]["uid"]
        if uid in self._told_foreign:
            return
        self._told_foreign.add(uid)
        _log.warning("class %s was made by somebody else and is left alone", name)
        event = foreign_class_event(live, annotation=self._options.adopts_annotation, now=self._now())
        self._tell(event)

    def _tell_events(self) -> None:
        while self._events:
            self._tell(self._events[0])
            del self._events[0]

    def _tell(self, event: Object) -> None:
        try:
            self._writer.tell(event)
        except ClusterError as error:
            # An Event is for people; the state that it tells of stands in the record and the class.
            self._failures[("event", type(error).__name__)] += 1
            _log.warning("event %s was not written: %s", event["reason"], error)

    def _note_failure(self, name: str, error: ClusterError) -> None:
        tries = self._failing.get(name, (0, ""))[0] + 1
        self._failing[name] = (tries, str(error))
        self._failures[("class", type(error).__name__)] += 1
        # The refusal may be of a definition that is another by now.
        self._definition_until = float("-inf")
        pause = min(self._times.between_writes * 2 ** (tries - 1), self._times.longest_backoff)
        self._not_before[name] = self._clock() + pause * random.uniform(0.75, 1.25)  # noqa: S311 - no secret
        self._dirty.add(name)
        _log.warning("class %s was not written, try %d: %s", name, tries, error)

    def _learn_definition(self) -> None:
        if self._clock() < self._definition_until:
            return
        try:
            definition = self._cluster.get(CRDS, CLASS_DEFINITION)
        except Forbidden:
            definition = None  # then the managed fields of the classes tell the variant
        except ClusterError as error:
            _log.debug("the definition of classes was not read: %s", error)
            return
        self._definition_until = self._clock() + self._times.between_looks_at_definition
        self._writer.learn(definition, self._classes.values())

    def _stale_before(self) -> float:
        return self._clock() - self._times.stale_after

    def _problems(self) -> Iterator[str]:
        named: dict[str, Source[Any]] = {
            "records": self._sources.records,
            "nodes": self._sources.nodes,
            "pods": self._sources.pods,
            "classes": self._sources.classes,
        }
        for kind, source in named.items():
            if source.absent:
                yield f"the cluster has no definition of {kind}"
            elif source.problem is not None:
                yield f"{kind} are not heard: {source.problem}"
        for name, (tries, message) in sorted(self._failing.items()):
            yield f"class {name} was not written ({tries} tries): {message}"


def _newer(one: Object | None, other: Object) -> Object:
    """Return the later of two states of an object: a watch may already have brought what came after our write."""
    if one is None or one["metadata"].get("uid") != other["metadata"].get("uid"):
        return other
    versions = [int(obj["metadata"].get("resourceVersion") or 0) for obj in (one, other)]
    return one if versions[0] > versions[1] else other
