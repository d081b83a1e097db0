"""Checks of a cluster: definitions, Nodes and their labels, rivals, records and their conditions."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from agent.core.class_spec import is_minimal_definition
from agent.core.doctor.check import ADMINISTRATOR, DEPLOYER, NODE_OPERATOR, Check, finding, ok, skipped
from agent.core.doctor.evidence import ClusterEvidence, Definition, Expected, Object
from agent.core.doctor.fleet import allocatable_check, uncovered_check, unselected_check
from agent.core.doctor.rights import rights_checks
from agent.core.doctor.words import first_of
from agent.core.keys import AGENT_MANAGER
from agent.core.label_plan import plan_labels
from agent.core.ownership import foreign_label_keys, owned_label_keys
from agent.core.recorded import node_uid_of


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
        allocatable_check(evidence),
        uncovered_check(evidence),
        unselected_check(evidence),
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
        first_of(told),
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
        "; ".join(f"{manager} owns {first_of(sorted(keys))}" for manager, keys in sorted(found.items())),
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
        if name in uids and node_uid_of(record) not in {None, uids[name]}:
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
        first_of(told),
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
        first_of(told),
        meaning="the agent on that node says what is wrong with it or its machine",
        mend="what the message says; accelerator-agent doctor in that node's pod tells more",
        who=NODE_OPERATOR,
    )


def _uids(nodes: Iterable[Object]) -> dict[str, str]:
    return {node["metadata"]["name"]: node["metadata"].get("uid", "") for node in nodes}


def _age_seconds(record: Object, now: datetime) -> float | None:
    observed = (record.get("spec") or {}).get("observedAt")
    return None if observed is None else (now - datetime.fromisoformat(observed)).total_seconds()


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min"
