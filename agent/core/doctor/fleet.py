"""Checks that set Nodes beside records: what the kubelet offers, which GPU Nodes run no agent, which no class selects."""

from collections.abc import Iterable, Mapping
from typing import Any

from agent.core.doctor.check import ADMINISTRATOR, DEPLOYER, Check, finding, ok, skipped
from agent.core.doctor.evidence import ClusterEvidence, Object
from agent.core.doctor.words import first_of, listed
from agent.core.quantity import InvalidQuantityError, whole_value
from agent.core.recorded import node_uid_of

_GPU_LABELS = (
    "nvidia.com/gpu.present",
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
    "feature.node.kubernetes.io/pci-0300_10de.present",
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "kubernetes.azure.com/accelerator",
)
_GPU_RESOURCES = ("nvidia.com/gpu", "nvidia.com/mig-")


def allocatable_check(evidence: ClusterEvidence) -> Check:
    """Compare what records call usable with what the kubelet offers, for each resource (FR-135)."""
    if isinstance(evidence.records, str) or isinstance(evidence.nodes, str):
        return skipped(
            "allocatable", str(evidence.nodes if isinstance(evidence.nodes, str) else evidence.records)
        )
    nodes = {node["metadata"]["name"]: node for node in evidence.nodes}
    told, compared = [], 0
    for record in evidence.records:
        name = record["metadata"]["name"]
        if name in nodes and not (record.get("spec") or {}).get("simulated"):
            usable = _usable(record)
            compared += len(usable)
            told += [f"{name}: {text}" for text in _differences(usable, nodes[name])]
    if told:
        return finding(
            "allocatable",
            first_of(told),
            meaning="pods that ask for such a resource stay pending, or more are placed than there are sound devices",
            mend="look at the device plugin's pod on that node: it does not run, was started before the devices were cut, "
            "shares them by time, or offers them under another name",
            who=ADMINISTRATOR,
        )
    if not compared:
        return skipped("allocatable", "no record of real hardware names a resource")
    return ok("allocatable", f"{compared} resources are offered as often as there are usable devices")


def _usable(record: Object) -> dict[str, int]:
    usable: dict[str, int] = {}
    for entry in (record.get("spec") or {}).get("classes") or ():
        if entry.get("resource"):
            usable[entry["resource"]] = usable.get(entry["resource"], 0) + int(entry["usable"])
    return usable


def _differences(usable: Mapping[str, int], node: Object) -> Iterable[str]:
    offered: Mapping[str, Any] = (node.get("status") or {}).get("allocatable") or {}
    for resource, count in sorted(usable.items()):
        if resource not in offered:
            if count:
                yield f"{count} usable of {resource}, and the kubelet offers no such resource"
            continue
        try:
            found = whole_value(offered[resource])
        except InvalidQuantityError:
            continue  # the API server accepts none of these
        if found != count:
            yield f"{count} usable of {resource}, and the kubelet offers {found}"


def uncovered_check(evidence: ClusterEvidence) -> Check:
    """Name Nodes that others say have GPUs and that no agent has ever reported on (FR-131)."""
    if evidence.node_name is not None:
        return skipped("uncovered", "only one Node is looked at; without --node-name all are")
    if isinstance(evidence.nodes, str) or isinstance(evidence.records, str):
        return skipped(
            "uncovered", str(evidence.nodes if isinstance(evidence.nodes, str) else evidence.records)
        )
    recorded = {record["metadata"]["name"] for record in evidence.records}
    gpus = [node for node in evidence.nodes if _says_gpu(node)]
    bare = [node for node in gpus if node["metadata"]["name"] not in recorded]
    if not bare:
        return ok("uncovered", f"each of {len(gpus)} Nodes that others call GPU nodes has a record")
    return finding(
        "uncovered",
        first_of([f"{node['metadata']['name']}{_taints(node)}" for node in bare]),
        meaning="nothing of ours is known about these Nodes' accelerators: no agent has run there, or it found none",
        mend="let the DaemonSet tolerate the taints, and its node selector or affinity take the Nodes in; where an agent "
        "runs, accelerator-agent doctor in its pod tells why it finds none",
        who=DEPLOYER,
    )


def unselected_check(evidence: ClusterEvidence) -> Check:
    """Name Nodes whose record counts usable devices of a class and which the class's node selector does not choose."""
    id_ = "unselected"
    nodes, records, classes = evidence.nodes, evidence.records, evidence.classes
    if isinstance(nodes, str) or isinstance(records, str) or isinstance(classes, str):
        return skipped(id_, next(part for part in (nodes, records, classes) if isinstance(part, str)))
    selectors = {one["metadata"]["name"]: _selector(one) for one in classes}
    held = {node["metadata"]["name"]: node["metadata"] for node in nodes}
    sure = [
        (record["metadata"]["name"], name)
        for record in records
        if _is_of(record, held.get(record["metadata"]["name"]))
        for name in _sure_classes(record)
        if name in selectors
    ]
    told = [
        f"{node} has usable devices of {name} and not {missing}"
        for node, name in sure
        if (missing := _missing(selectors[name], held[node].get("labels") or {}))
    ]
    if told:
        return finding(
            id_,
            first_of(told),
            meaning="pods that ask for the class are not placed on these Nodes, although the class counts them",
            mend="give agents and controller the same label_domain; where the selector is an operator's (node_selectors) "
            "or a person's, put its label on the Nodes or correct it; else look at labels, rivals and conditions there",
            who=DEPLOYER,
        )
    if not sure:
        return skipped(id_, "no class is there that a record counts devices of")
    return ok(id_, f"every Node is chosen by the selectors of its classes ({len(sure)} compared)")


def _is_of(record: Object, node: Mapping[str, Any] | None) -> bool:
    """Tell whether a record is that of the Node of its name, and not of one that was deleted; no other counts."""
    if node is None:
        return False
    return node_uid_of(record) in {None, node.get("uid")}


def _selector(accelerator_class: Object) -> Mapping[str, str]:
    return ((accelerator_class.get("spec") or {}).get("discovery") or {}).get("nodeSelector") or {}


def _sure_classes(record: Object) -> Iterable[str]:
    """Yield the classes of which a pod on the node is sure to get a device: no other hides behind the same resource."""
    entries = (record.get("spec") or {}).get("classes") or ()
    for entry in entries:
        alone = [other["name"] for other in entries if other.get("resource") == entry.get("resource")]
        if entry["usable"] and alone == [entry["name"]]:
            yield entry["name"]


def _missing(selector: Mapping[str, str], labels: Mapping[str, str]) -> str:
    return listed(f"{key}={value}" for key, value in selector.items() if labels.get(key) != value)


def _says_gpu(node: Object) -> bool:
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) not in {None, "false"} for key in _GPU_LABELS):
        return True
    status = node.get("status") or {}
    resources = {**(status.get("capacity") or {}), **(status.get("allocatable") or {})}
    return any(name.startswith(_GPU_RESOURCES) and str(value) != "0" for name, value in resources.items())


def _taints(node: Object) -> str:
    taints = [
        f"{taint['key']}={taint.get('value', '')}:{taint.get('effect', '')}"
        for taint in (node.get("spec") or {}).get("taints") or ()
    ]
    return f" (taints {listed(taints)})" if taints else " (no taint)"
