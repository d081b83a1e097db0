"""Checks of a cluster: definitions, Nodes and their labels, records, rivals, what is allocatable, who runs no agent."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from agent.core.class_spec import is_minimal_definition
from agent.core.doctor.check import ADMINISTRATOR, DEPLOYER, NODE_OPERATOR, Check, finding, ok, skipped
from agent.core.doctor.rights import Reviewed, rights_checks
from agent.core.doctor.words import listed
from agent.core.keys import AGENT_MANAGER
from agent.core.label_plan import plan_labels
from agent.core.ownership import foreign_label_keys, owned_label_keys
from agent.core.quantity import InvalidQuantityError, whole_value

Object = dict[str, Any]

Definition = Literal["absent", "not-readable"]

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
_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEvidence:
    """What a cluster told; a text in place of an object says why it was not told."""

    reviews: tuple[Reviewed, ...]
    records_definition: Object | Definition
    classes_definition: Object | Definition
    node_name: str | None
    """Of the Node that is looked at; `None`: all of them."""
    nodes: tuple[Object, ...] | str
    """The one Node, or all; none where the named one does not exist."""
    records: tuple[Object, ...] | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the cluster should say."""

    domains: tuple[str, ...]
    """The label domain and former ones."""
    labels: Mapping[str, str] | None
    """Of the named Node by the facts of this machine; `None` where the two are not the same machine, or facts fail."""
    labels_not_known: str
    """Why `labels` is `None`."""
    stale_after_seconds: float
    now: datetime


def cluster_checks(evidence: ClusterEvidence, expected: Expected) -> tuple[Check, ...]:
    """Return the checks of a cluster that answered."""
    return (
        *rights_checks(evidence.reviews),
        _records_definition(evidence.records_definition),
        _classes_definition(evidence.classes_definition),
        _node(evidence),
        _labels(evidence, expected),
        _rivals(evidence, expected),
        _record(evidence, expected),
        _conditions(evidence),
        _allocatable(evidence),
        _uncovered(evidence),
    )


def _records_definition(definition: Object | Definition) -> Check:
    id_ = "definition-records"
    if definition == "not-readable":
        return ok(
            id_, "acceleratornodes.accelerators.ome.io is served; the definition itself may not be read"
        )
    if definition != "absent":
        return ok(id_, "acceleratornodes.accelerators.ome.io is installed")
    return finding(
        id_,
        "acceleratornodes.accelerators.ome.io is not installed",
        meaning="agents have nowhere to write their record, so that no class and no condition can come of it",
        mend="apply deploy/daemonset (it holds acceleratornodes-crd.yaml)",
        who=ADMINISTRATOR,
    )


def _classes_definition(definition: Object | Definition) -> Check:
    id_ = "definition-classes"
    if isinstance(definition, str):
        if definition == "not-readable":
            return ok(
                id_,
                "acceleratorclasses.ome.io is served; the definition, and so its variant, may not be read",
            )
        return finding(
            id_,
            "acceleratorclasses.ome.io is not installed",
            meaning="labels, records and metrics are published, and no AcceleratorClass",
            mend="install OME, or the overlay ome-crd where there is no OME",
            who=ADMINISTRATOR,
        )
    variant = (
        "minimal: spec and status are each one value" if is_minimal_definition(definition) else "validated"
    )
    return ok(id_, f"acceleratorclasses.ome.io is installed ({variant})")


def _node(evidence: ClusterEvidence) -> Check:
    if evidence.node_name is None:
        return skipped("node", "no node name is given (--node-name, or ACCELERATOR_NODE_NAME in the pod)")
    if isinstance(evidence.nodes, str):
        return skipped("node", evidence.nodes)
    if evidence.nodes:
        return ok("node", f"there is a Node {evidence.node_name}")
    return finding(
        "node",
        f"there is no Node {evidence.node_name!r}",
        meaning="there is nothing to label: the name given to the agent is not that of its Node",
        mend="give ACCELERATOR_NODE_NAME from the downward API (fieldPath: spec.nodeName), never from the host name",
        who=DEPLOYER,
    )


def _labels(evidence: ClusterEvidence, expected: Expected) -> Check:
    """Compare the Node's labels with those that this machine's facts make."""
    if expected.labels is None:
        return skipped("labels", expected.labels_not_known)
    if evidence.node_name is None or isinstance(evidence.nodes, str) or not evidence.nodes:
        return skipped("labels", "there is no Node to compare with")
    [node] = evidence.nodes
    live: Mapping[str, str] = node["metadata"].get("labels") or {}
    plan = plan_labels(node, expected.labels, domains=expected.domains)
    absent = [key for key in plan.apply if key not in live]
    differing = [key for key, value in plan.apply.items() if key in live and live[key] != value]
    if not absent and not differing and not plan.orphans:
        return ok("labels", f"all {len(plan.apply)} labels are as this machine's facts make them")
    told = [f"{key} is absent" for key in absent]
    told += [f"{key} is {live[key]!r}, not {plan.apply[key]!r}" for key in differing]
    told += [f"{key} should not be there" for key in plan.orphans]
    return finding(
        "labels",
        _first_of(told),
        meaning="the agent on this node does not run, may not write, or saw something else when it last wrote",
        mend="look at the agent's pod on this node and its log; labels are made right within one interval of its start",
        who=DEPLOYER,
    )


def _rivals(evidence: ClusterEvidence, expected: Expected) -> Check:
    """Name managers other than the agent that own labels which agents write; other keys under our domains are free."""
    if isinstance(evidence.nodes, str):
        return skipped("rivals", evidence.nodes)
    written = set(expected.labels or ())
    for node in evidence.nodes:
        written |= owned_label_keys(node, AGENT_MANAGER)
    found: dict[str, set[str]] = {}
    for node in evidence.nodes:
        live = node["metadata"].get("labels") or {}
        for key, manager in foreign_label_keys(node, written & live.keys(), AGENT_MANAGER).items():
            found.setdefault(manager, set()).add(key)
    if not found:
        return ok("rivals", f"no other manager owns a label of ours on {len(evidence.nodes)} Nodes")
    return finding(
        "rivals",
        "; ".join(f"{manager} owns {_first_of(sorted(keys))}" for manager, keys in sorted(found.items())),
        meaning="such a key is left to its owner, whatever its value, and may say something untrue",
        mend="remove the key from what the other manager applies, or from the Node by hand "
        "(kubectl label node NAME KEY-); the agent writes it again",
        who=ADMINISTRATOR,
    )


def _record(evidence: ClusterEvidence, expected: Expected) -> Check:
    """Judge whether records are there, of this Node, and fresh."""
    if isinstance(evidence.records, str):
        return skipped("record", evidence.records)
    if not evidence.records:
        return _no_record(evidence, expected)
    uids = {} if isinstance(evidence.nodes, str) else _uids(evidence.nodes)
    told = []
    for record in evidence.records:
        name = record["metadata"]["name"]
        age = _age_seconds(record, expected.now)
        if name in uids and _owner(record) not in {None, uids[name]}:
            told.append(f"{name} belongs to a Node of this name that was deleted")
        elif age is None:
            told.append(f"{name} does not say when it was observed")
        elif age > expected.stale_after_seconds:
            told.append(f"{name} was observed {_minutes(age)} ago")
    if not told:
        return ok(
            "record",
            f"{len(evidence.records)} records, none older than {_minutes(expected.stale_after_seconds)}",
        )
    return finding(
        "record",
        _first_of(told),
        meaning="the controller counts such a node's accelerators as not available",
        mend="look at the agent's pod on that node: it does not run, cannot reach the API server, or cannot probe",
        who=DEPLOYER,
    )


def _no_record(evidence: ClusterEvidence, expected: Expected) -> Check:
    if evidence.node_name is None or not expected.labels:
        return skipped(
            "record", "no node has a record: none with an accelerator runs an agent, as far as is known"
        )
    return finding(
        "record",
        f"{evidence.node_name} has no AcceleratorNode, and this machine has accelerators",
        meaning="no class counts this machine",
        mend="look at the agent's pod on this node and its log; rights-agent and definition-records name two causes",
        who=DEPLOYER,
    )


def _conditions(evidence: ClusterEvidence) -> Check:
    if isinstance(evidence.records, str) or not evidence.records:
        return skipped(
            "conditions", evidence.records if isinstance(evidence.records, str) else "there is no record"
        )
    told = [
        f"{record['metadata']['name']}: {entry['type']} is {entry['status']} ({entry.get('reason', '')}): "
        f"{entry.get('message', '')}"
        for record in evidence.records
        for entry in (record.get("status") or {}).get("conditions") or ()
        if entry["status"] != "True"
    ]
    if not told:
        return ok("conditions", f"every condition of {len(evidence.records)} records is True")
    return finding(
        "conditions",
        _first_of(told),
        meaning="the agent on that node says what is wrong with it or its machine",
        mend="what the message says; accelerator-agent doctor in that node's pod tells more",
        who=NODE_OPERATOR,
    )


def _allocatable(evidence: ClusterEvidence) -> Check:
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
            _first_of(told),
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


def _uncovered(evidence: ClusterEvidence) -> Check:
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
        _first_of([f"{node['metadata']['name']}{_taints(node)}" for node in bare]),
        meaning="no agent has run on these Nodes, so that nothing of ours is known about their accelerators",
        mend="let the DaemonSet tolerate the taints, and its node selector or affinity take the Nodes in",
        who=DEPLOYER,
    )


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


def _uids(nodes: Iterable[Object]) -> dict[str, str]:
    return {node["metadata"]["name"]: node["metadata"].get("uid", "") for node in nodes}


def _owner(record: Object) -> str | None:
    references: Sequence[Mapping[str, str]] = record["metadata"].get("ownerReferences") or ()
    return next((entry.get("uid") for entry in references if entry.get("kind") == "Node"), None)


def _age_seconds(record: Object, now: datetime) -> float | None:
    observed = (record.get("spec") or {}).get("observedAt")
    return None if observed is None else (now - datetime.fromisoformat(observed)).total_seconds()


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min"


def _first_of(texts: Sequence[str]) -> str:
    """Return the first few of many, and how many more there are."""
    rest = len(texts) - _SHOWN
    return "; ".join(texts[:_SHOWN]) + (f"; and {rest} more" if rest > 0 else "")
