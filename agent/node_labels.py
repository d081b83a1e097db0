"""An agent's labels on its Node from pass to pass: what rivals and refusals taught, so that nothing is fought over."""

from collections.abc import Mapping
from dataclasses import replace

from agent.cluster import Cluster, Object
from agent.core.label_plan import (
    Contention,
    Denial,
    contention_after_read,
    denials_after,
    former_keys_kept,
    held_back,
)
from agent.core.outcomes import Published
from agent.node_publish import apply_labels, with_left_out


class NodeLabels:
    """Publishes labels and remembers who deleted them and which were refused."""

    def __init__(self, domains: tuple[str, ...]) -> None:
        """`domains` are the present label domain and the former ones."""
        self._domains = domains
        self._contention = Contention()
        self._denials: dict[str, Denial] = {}
        self._node_uid: str | None = None

    def publish(
        self, cluster: Cluster, node: Object, desired: Mapping[str, str], *, monotonic: float
    ) -> Published:
        """Make the Node's labels `desired` as far as others allow, and say what came of it."""
        live: Mapping[str, str] = node["metadata"].get("labels") or {}
        same_node = self._node_uid in {None, node["metadata"]["uid"]}
        self._node_uid = node["metadata"]["uid"]
        self._contention = contention_after_read(self._contention, live, monotonic, same_node=same_node)
        if self._contention.yielding(monotonic):
            message = "another writer keeps deleting our labels; they are left alone for a while"
            return Published(target="labels", reason="RivalDeletesLabels", message=message)
        back = held_back(self._denials, desired, monotonic)
        tried = {key: value for key, value in desired.items() if key not in back}
        tried |= former_keys_kept(node, back, self._domains)
        result = apply_labels(cluster, node, tried, domains=self._domains)
        held = (result.node["metadata"].get("labels") or {}).keys()
        if not result.published.failed or result.published.left_out:
            self._contention = replace(self._contention, applied=frozenset(desired) & frozenset(held))
            self._denials = denials_after(self._denials, desired, result.published.left_out, monotonic)
        return with_left_out(result.published, back)
