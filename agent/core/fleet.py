"""The whole cluster as the controller last heard of it, kept so that one change costs one node's work.

No I/O and no clock: views go in, class states come out. What changed since the last look is in `dirty`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from agent.core.cluster_views import NodeView, PodView, RecordView
from agent.core.fold import ClassState, Share, class_state, shares_of

T = TypeVar("T")


class Fleet:
    """Records, Nodes and Pods, and the shares that follow from them."""

    def __init__(self) -> None:
        """Start empty; `pods_known` turns false where Pods may not be read."""
        self.dirty: set[str] = set()
        """Classes of which a share changed; whoever computes them takes them out."""
        self.pods_known = True
        self._records: dict[str, RecordView] = {}
        self._nodes: dict[str, NodeView] = {}
        self._pods: dict[str, PodView] = {}
        self._requested: dict[str, dict[str, int]] = {}
        self._shares: dict[str, tuple[Share, ...]] = {}
        self._by_class: dict[str, dict[str, Share]] = {}
        self._stale_before = float("inf")

    @property
    def records(self) -> Mapping[str, RecordView]:
        """Return the records by name."""
        return self._records

    @property
    def nodes(self) -> Mapping[str, NodeView]:
        """Return the Nodes by name."""
        return self._nodes

    @property
    def class_names(self) -> frozenset[str]:
        """Return the classes that some node has a share of."""
        return frozenset(self._by_class)

    def put_record(self, name: str, record: RecordView | None) -> None:
        """Take in a record, `None` when it is gone."""
        _put(self._records, name, record)
        self._renew(name)

    def put_node(self, name: str, node: NodeView | None) -> None:
        """Take in a Node, `None` when it is gone."""
        _put(self._nodes, name, node)
        self._renew(name)

    def put_pod(self, key: str, pod: PodView | None) -> None:
        """Take in a Pod, `None` when it is gone or takes nothing any more."""
        before = self._pods.get(key)
        _put(self._pods, key, pod)
        for view, sign in ((before, -1), (pod, 1)):
            if view is not None:
                self._count(view, sign)
        for node in {view.node for view in (before, pod) if view is not None}:
            self._renew(node)

    def state(self, name: str, *, stale_before: float) -> ClassState:
        """Return a class as it is now; one that no node has is empty."""
        self._stale_before = stale_before
        shares = self._by_class.get(name, {}).values()
        return class_state(name, shares, stale_before=stale_before, pods_known=self.pods_known)

    def stale_records(self, *, stale_before: float) -> int:
        """Return how many records of living Nodes are older than that."""
        return sum(
            1
            for name, record in self._records.items()
            if name in self._nodes and (record.observed_at is None or record.observed_at < stale_before)
        )

    def _count(self, pod: PodView, sign: int) -> None:
        of_node = self._requested.setdefault(pod.node, {})
        for resource, count in pod.requests.items():
            of_node[resource] = of_node.get(resource, 0) + sign * count
            if not of_node[resource]:
                del of_node[resource]
        if not of_node:
            del self._requested[pod.node]

    def _only_renewed(self, before: Share | None, after: Share | None) -> bool:
        """Tell whether a record was only written again in time, which nearly all writes of a large fleet are."""
        if before is None or after is None or before.observed_at is None or after.observed_at is None:
            return False
        in_time = before.observed_at >= self._stale_before <= after.observed_at
        return in_time and replace(before, observed_at=after.observed_at) == after

    def _renew(self, node: str) -> None:
        before = self._shares.get(node, ())
        record = self._records.get(node)
        after = shares_of(record, self._nodes.get(node), self._requested.get(node, {})) if record else ()
        if after == before:
            return
        old = {share.class_name: share for share in before}
        new = {share.class_name: share for share in after}
        _put(self._shares, node, after or None)
        for name in old.keys() | new.keys():
            if old.get(name) == new.get(name):
                continue
            if not self._only_renewed(old.get(name), new.get(name)):
                self.dirty.add(name)
            members = self._by_class.setdefault(name, {})
            _put(members, node, new.get(name))
            if not members:
                del self._by_class[name]


def _put(held: dict[str, T], key: str, value: T | None) -> None:
    if value is None:
        held.pop(key, None)
    else:
        held[key] = value
