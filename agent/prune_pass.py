"""The clean-up of an uninstall: removes our labels, our records and, where asked, our classes. Safe to run twice."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from agent.cluster import (
    ACCELERATOR_CLASSES,
    ACCELERATOR_NODES,
    CLUSTER_SERVING_RUNTIMES,
    INFERENCE_SERVICES,
    NODES,
    SERVING_RUNTIMES,
    Cluster,
    NotFound,
    Object,
    Resource,
)
from agent.core.class_spec import ClassOptions
from agent.core.keys import AGENT_MANAGER
from agent.core.ownership import owned_label_keys
from agent.core.pruning import class_references, our_label_keys, prunable_classes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What was removed, or would be."""

    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Node → label keys."""
    records: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    kept: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Class → who names it: a class that is named is not removed."""


def prune_nodes(cluster: Cluster, *, domains: Iterable[str], dry_run: bool = False) -> Pruned:
    """Remove what the agents wrote; `domains` are the present and all former label domains.

    Stop the agents first: one that still runs writes its labels again.
    """
    labels: dict[str, tuple[str, ...]] = {}
    domains = tuple(domains)
    nodes, _ = cluster.list_all(NODES, project=_identity_and_labels)
    for node in nodes:
        keys = our_label_keys(node, domains)
        if keys:
            labels[node["metadata"]["name"]] = keys
        if not dry_run and (keys or owned_label_keys(node, AGENT_MANAGER)):
            _remove_labels(cluster, node, keys)
    records = _names(cluster, ACCELERATOR_NODES)
    if not dry_run:
        for name in records:
            cluster.delete(ACCELERATOR_NODES, name)
    return Pruned(labels=labels, records=records)


def prune_classes(cluster: Cluster, options: ClassOptions, *, dry_run: bool = False) -> Pruned:
    """Remove the classes that we made, but for those that a runtime or a service names.

    Stop the controller first: while a node has the hardware it makes the class again.
    """
    ours = prunable_classes(_listed(cluster, ACCELERATOR_CLASSES), options)
    runtimes = [*_listed(cluster, SERVING_RUNTIMES), *_listed(cluster, CLUSTER_SERVING_RUNTIMES)]
    named = class_references(runtimes, _listed(cluster, INFERENCE_SERVICES))
    removable = tuple(name for name in ours if name not in named)
    if not dry_run:
        for name in removable:
            cluster.delete(ACCELERATOR_CLASSES, name)
    return Pruned(classes=removable, kept={name: named[name] for name in ours if name in named})


def _remove_labels(cluster: Cluster, node: Object, keys: tuple[str, ...]) -> None:
    head = {"apiVersion": NODES.api_version, "kind": NODES.kind}
    name, uid = node["metadata"]["name"], node["metadata"]["uid"]
    # An apply of nothing removes what we own alone and gives up what others own too.
    cluster.apply(NODES, {**head, "metadata": {"name": name, "uid": uid}}, manager=AGENT_MANAGER)
    left = cluster.get(NODES, name)
    rest = [key for key in keys if left and key in (left["metadata"].get("labels") or {})]
    if rest:
        # Keys of ours that nobody owns: managed fields were lost, or something else than an apply wrote them.
        patch = {"metadata": {"uid": uid, "labels": dict.fromkeys(rest)}}
        cluster.merge_patch(NODES, name, patch, manager=AGENT_MANAGER)


def _identity_and_labels(node: Object) -> Object:
    metadata = node["metadata"]
    kept = {key: metadata[key] for key in ("name", "uid", "labels", "managedFields") if key in metadata}
    return {"metadata": kept}


def _names(cluster: Cluster, resource: Resource) -> tuple[str, ...]:
    return tuple(sorted(obj["metadata"]["name"] for obj in _listed(cluster, resource)))


def _listed(cluster: Cluster, resource: Resource) -> list[Object]:
    try:
        items, _ = cluster.list_all(resource)
    except NotFound:  # nothing of a kind that is not installed
        return []
    return items
