"""Brings one AcceleratorClass to what the fold found: read, plan, write on difference, start again when it changed.

The spec is applied without force and the status with it; on the minimal definition both are merge patches.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agent.cluster import ACCELERATOR_CLASSES, EVENTS, Cluster, Conflict, Object
from agent.core.class_plan import Override, SpecPlan, plan_apply, plan_merge
from agent.core.class_spec import (
    ClassOptions,
    adopted_class,
    cut_to_definition,
    desired_class,
    is_minimal_definition,
    is_ours,
    shows_minimal_definition,
)
from agent.core.class_status import changed_conditions, ome_writes_nodes, status_differs, wanted_status
from agent.core.cluster_events import class_events
from agent.core.fold import ClassState
from agent.core.keys import INVENTORY_MANAGER

_ATTEMPTS = 4


class NotLeadingError(Exception):
    """Another replica may lead by now: nothing more is written in this turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One class object and what is true of it."""

    name: str
    state: ClassState
    adopted: bool = False
    """A person's class that stands for the canonical one of `state`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What would be written of one class; both parts `None` when it is as it should be."""

    name: str
    spec: Object | None
    status: dict[str, Any] | None
    overridden: tuple[Override, ...] = ()

    @property
    def is_some(self) -> bool:
        """Tell whether anything differs."""
        return self.spec is not None or self.status is not None


class ClassWriter:
    """Writes classes; one at a time, each write bound to the version that was read."""

    def __init__(
        self,
        cluster: Cluster,
        options: ClassOptions,
        *,
        now: Callable[[], datetime],
        may_write: Callable[[], bool] = lambda: True,
        wrote: Callable[[str], object] = lambda _target: None,
    ) -> None:
        """`may_write` is asked before each write; `wrote` is told `class`, `class-status` or `event` after it."""
        self._cluster = cluster
        self._options = options
        self._now = now
        self._may_write = may_write
        self._wrote = wrote
        self._definition: Object | None = None
        self._minimal = False

    def learn(self, definition: Object | None, classes: Iterable[Object] = ()) -> None:
        """Take in the installed CRD; where it may not be read (`None`), the classes' managed fields tell the variant."""
        self._definition = definition
        if definition is not None:
            self._minimal = is_minimal_definition(definition)
        else:
            self._minimal = self._minimal or shows_minimal_definition(classes)

    def difference(self, target: Target, live: Object | None, others: Iterable[Object]) -> Difference:
        """Return what would be written over `live`; `others` are the cluster's classes, which show whether OME runs."""
        plan = self._plan(target, live, {})
        after = live or _unborn(target, self._now())
        status = self._status(target, after, plan.overridden, others)
        return Difference(name=target.name, spec=plan.body, status=status, overridden=plan.overridden)

    def bring(self, target: Target, others: Iterable[Object]) -> Object | None:
        """Write what differs from the live class and return it as it then is; `None` when there is none to write.

        Raises `ClusterError`, and `Conflict` when it kept changing; `NotLeadingError`.
        """
        others = list(others)
        refused: dict[str, str] = {}
        for attempt in range(1, _ATTEMPTS + 1):
            live = self._cluster.get(ACCELERATOR_CLASSES, target.name)
            if not self._is_writable(target, live):
                return live
            try:
                return self._bring_once(target, live, others, refused)
            except Conflict as conflict:
                refused |= {one.field: one.manager for one in conflict.conflicts}
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def tell(self, event: Object) -> None:
        """Create an Event; one that exists was told before."""
        self._check()
        try:
            self._cluster.create(EVENTS, event, manager=INVENTORY_MANAGER)
        except Conflict:
            return
        self._wrote("event")

    def _bring_once(
        self, target: Target, live: Object | None, others: list[Object], refused: dict[str, str]
    ) -> Object | None:
        plan = self._plan(target, live, refused)
        if plan.body is not None:
            live = self._write_spec(target, live, plan.body, refused)
        if live is None:
            return None
        status = self._status(target, live, plan.overridden, others)
        if status is None:
            return live
        events = class_events(
            live, changed_conditions(live, {"conditions": status["conditions"]}), now=self._now()
        )
        written = self._write_status(live, status)
        for event in events:
            self.tell(event)
        return written

    def _is_writable(self, target: Target, live: Object | None) -> bool:
        if live is None:
            return not target.adopted
        if "deletionTimestamp" in live["metadata"]:
            return False
        if target.adopted:
            return adopted_class(live, self._options) is not None
        return is_ours(live, self._options)

    def _plan(self, target: Target, live: Object | None, refused: dict[str, str]) -> SpecPlan:
        content = target.state.content
        if content is None:
            # A retired class keeps the spec that it had: nobody knows a better one.
            return SpecPlan(body=None)
        adopter = target.name if target.adopted else None
        desired = desired_class(target.state, content, self._options, adopter=adopter)
        if self._minimal:
            return plan_merge(live, desired, self._options)
        if self._definition is not None:
            desired = cut_to_definition(desired, self._definition)
        foreign = {named: manager for named, manager in refused.items() if manager != INVENTORY_MANAGER}
        return plan_apply(live, desired, adopted=target.adopted, refused=foreign)

    def _status(
        self, target: Target, live: Object, overridden: tuple[Override, ...], others: Iterable[Object]
    ) -> dict[str, Any] | None:
        now = self._now()
        with_nodes = not ome_writes_nodes(live, others, now=now)
        wanted = wanted_status(target.state, live, overridden, now=now, with_nodes=with_nodes)
        return wanted if status_differs(live, wanted) else None

    def _write_spec(
        self, target: Target, live: Object | None, body: Object, refused: dict[str, str]
    ) -> Object:
        self._check()
        if not self._minimal:
            # Conflicts with our own name come from fields that we once wrote by another verb.
            force = INVENTORY_MANAGER in refused.values()
            written = self._cluster.apply(ACCELERATOR_CLASSES, body, manager=INVENTORY_MANAGER, force=force)
        elif live is None:
            written = self._cluster.create(ACCELERATOR_CLASSES, body, manager=INVENTORY_MANAGER)
        else:
            written = self._cluster.merge_patch(
                ACCELERATOR_CLASSES, target.name, body, manager=INVENTORY_MANAGER
            )
        self._wrote("class")
        return written

    def _write_status(self, live: Object, status: dict[str, Any]) -> Object:
        self._check()
        metadata = {key: live["metadata"][key] for key in ("name", "uid", "resourceVersion")}
        if self._minimal:
            removed = {} if "availableAccelerators" in status else {"availableAccelerators": None}
            patch = {
                "metadata": {"resourceVersion": metadata["resourceVersion"]},
                "status": {**removed, **status},
            }
            written = self._cluster.merge_patch(
                ACCELERATOR_CLASSES, metadata["name"], patch, manager=INVENTORY_MANAGER, subresource="status"
            )
        else:
            head = {"apiVersion": ACCELERATOR_CLASSES.api_version, "kind": ACCELERATOR_CLASSES.kind}
            body = {**head, "metadata": metadata, "status": status}
            written = self._cluster.apply(
                ACCELERATOR_CLASSES, body, manager=INVENTORY_MANAGER, force=True, subresource="status"
            )
        self._wrote("class-status")
        return written

    def _check(self) -> None:
        if not self._may_write():
            raise NotLeadingError


def _unborn(target: Target, now: datetime) -> Object:
    """Return a class that is not there yet, for planning its first status."""
    return {"metadata": {"name": target.name, "creationTimestamp": now.isoformat()}}
