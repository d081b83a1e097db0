"""What changes under a running installation: the definition, the domain of the labels, and at the end all of it."""

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agent.cluster import ACCELERATOR_CLASSES, ACCELERATOR_NODES, CRDS, NODES
from agent.core.undeclared import undeclared_fields, without_fields
from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import (
    DAEMONSET_FOLDER,
    NODE_CRD,
    account_token,
    documents,
    eventually,
    node_token,
    ready_node,
)
from tests.main_path.agent_process import AgentProcess

DOMAIN = "accelerators.ome.io"
OTHER = "gpu.example.com"
NODE = "gpu-1"
CRD_NAME = "acceleratornodes.accelerators.ome.io"

Start = Callable[..., AgentProcess]


@pytest.fixture
def plane(new_control_plane: Callable[..., ControlPlane]) -> Iterator[ControlPlane]:
    """A cluster to oneself with the base and OME's definition, and one Node."""
    plane = new_control_plane()
    plane.kubectl("apply", "-k", str(DAEMONSET_FOLDER / "overlays" / "ome-crd"))
    ready_node(plane.admin, NODE, resources={"nvidia.com/gpu": "8"}, labels={"team": "search"})
    yield plane
    plane.stop()


@pytest.fixture
def start(plane: ControlPlane, tmp_path: Path) -> Iterator[Start]:
    """`start("node", **settings)` runs our program with the account's own token; all end with the test."""
    with ExitStack() as running:
        configs: dict[str, Path] = {}

        def run(command: str = "node", *arguments: str, **settings: str) -> AgentProcess:
            if command not in configs:
                token = (
                    node_token(plane.admin, NODE)
                    if command == "node"
                    else account_token(plane.admin, "accelerator-inventory")
                )
                configs[command] = plane.kubeconfig(token)
            told = {
                "KUBECONFIG": str(configs[command]),
                "ACCELERATOR_NODE_NAME": NODE,
                "ACCELERATOR_ALLOW_SIMULATED": "true",
                "ACCELERATOR_LISTEN": "127.0.0.1:0",
                "ACCELERATOR_PROBE_INTERVAL": "1s",
                **({"ACCELERATOR_FAKE": "h100x8"} if command == "node" else {}),
                **{f"ACCELERATOR_{name.upper()}": value for name, value in settings.items()},
            }
            log = tmp_path / f"{command}-{len(list(tmp_path.glob('*.log')))}.log"
            return running.enter_context(AgentProcess(command, *arguments, log=log, environment=told))

        yield run


def labels_of(plane: ControlPlane) -> dict[str, str]:
    found: dict[str, str] = plane.admin.get(NODES, NODE)["metadata"]["labels"]
    return found


def under(plane: ControlPlane, domain: str) -> dict[str, str]:
    return {
        key: value
        for key, value in labels_of(plane).items()
        if (prefix := key.partition("/")[0]) == domain or prefix.endswith(f".{domain}")
    }


def record_of(plane: ControlPlane) -> dict[str, Any]:
    return plane.admin.find(ACCELERATOR_NODES, NODE) or {}


# The definition.

NEWER = {
    ("spec", "host"),
    ("spec", "driver", "cudaVersion"),
    ("spec", "devices", "link", "pcieWidthMax"),
    ("spec", "devices", "clocks"),
    ("spec", "devices", "memoryBusBits"),
    ("status", "summary", "healthy"),
}
"""Fields that the older definition of these tests lacks: of an object, of items, a whole object, of the status."""


def older_definition() -> dict[str, Any]:
    (body,) = documents(NODE_CRD)
    body = copy.deepcopy(body)
    schema = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for path in NEWER:
        here = schema
        for name in path[:-1]:
            here = here["properties"][name]
            here = here.get("items", here)
        del here["properties"][path[-1]]
    return body


def served(plane: ControlPlane, definition: dict[str, Any]) -> None:
    """Put a definition in place of the one that is there, and wait until applies are typed by it."""
    live = plane.admin.get(CRDS, CRD_NAME)
    metadata = definition["metadata"] | {"resourceVersion": live["metadata"]["resourceVersion"]}
    plane.admin.replace(CRDS, CRD_NAME, definition | {"metadata": metadata})
    wanted = (
        "host"
        in definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    )
    probe = {
        "apiVersion": ACCELERATOR_NODES.api_version,
        "kind": ACCELERATOR_NODES.kind,
        "metadata": {"name": "probe"},
        "spec": {"agentVersion": "0", "host": {}},
    }

    def typed() -> bool:
        answer = plane.admin.request(
            "PATCH",
            "/apis/accelerators.ome.io/v1alpha1/acceleratornodes/probe",
            probe,
            content_type="application/apply-patch+yaml",
            query={"fieldManager": "tests", "dryRun": "All"},
        )
        return (answer.status in {200, 201}) == wanted

    eventually(typed, what="the definition")


def test_an_older_definition_takes_the_record_without_what_it_does_not_know(
    plane: ControlPlane, start: Start
) -> None:
    served(plane, older_definition())
    agent = start()
    record = eventually(lambda: record_of(plane), what="the record")
    assert len(record["spec"]["devices"]) == 8
    assert "host" not in record["spec"]
    assert "pcieWidth" in record["spec"]["devices"][0]["link"]
    assert record["status"]["summary"] == {"classes": "nvidia-h100-80gb", "count": 8}
    # Written once, and not again at every pass for what is left out.
    mark = plane.audit.mark()
    eventually(
        lambda: len(plane.audit.since(mark, user=":accelerator-agent", resource="nodes")) >= 3,
        what="three more passes",
    )
    assert plane.audit.since(mark, user=":accelerator-agent", writes_only=True) == []
    (told,) = [line for line in agent.log.splitlines() if "without some fields" in line]
    assert ".spec.devices.clocks" in told
    assert ".spec.host" in told
    assert agent.metric('accelerator_publish_failures_total{target="record"') is None


def test_a_newer_definition_is_used_at_the_next_heartbeat(plane: ControlPlane, start: Start) -> None:
    served(plane, older_definition())
    start(heartbeat="3s")
    eventually(lambda: record_of(plane), what="the record")
    served(plane, documents(NODE_CRD)[0])
    eventually(lambda: "host" in record_of(plane)["spec"], what="the whole record")
    assert record_of(plane)["status"]["summary"]["healthy"] == "8/8"


def test_a_definition_that_becomes_older_costs_no_label_and_no_device(
    plane: ControlPlane, start: Start
) -> None:
    start(heartbeat="3s")
    eventually(lambda: record_of(plane).get("spec", {}).get("host"), what="the whole record")
    before = under(plane, DOMAIN)
    served(plane, older_definition())
    observed = record_of(plane)["spec"]["observedAt"]
    eventually(lambda: record_of(plane)["spec"]["observedAt"] > observed, what="the next heartbeat")
    assert len(record_of(plane)["spec"]["devices"]) == 8
    assert under(plane, DOMAIN) == before


def test_a_record_of_an_older_agent_is_taken_over_whole(plane: ControlPlane, start: Start) -> None:
    uid = plane.admin.get(NODES, NODE)["metadata"]["uid"]
    older = {
        "apiVersion": ACCELERATOR_NODES.api_version,
        "kind": ACCELERATOR_NODES.kind,
        "metadata": {
            "name": NODE,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": uid}],
        },
        "spec": {
            "agentVersion": "0.0.1",
            "devices": [{"id": "GPU-of-another-time", "vendor": "nvidia", "state": "ok", "index": 0}],
        },
    }
    plane.admin.apply(ACCELERATOR_NODES, older, manager="accelerator-agent", force=True)
    start()
    eventually(lambda: record_of(plane)["spec"].get("driver"), what="the new record")
    record = record_of(plane)
    assert record["spec"]["agentVersion"] != "0.0.1"
    assert {"nvidia-h100-80gb"} <= {one["name"] for one in record["spec"]["classes"]}


def test_the_controller_reads_records_of_an_older_agent(plane: ControlPlane, start: Start) -> None:
    uid = plane.admin.get(NODES, NODE)["metadata"]["uid"]
    agent = start()
    record = eventually(lambda: record_of(plane), what="the record")
    agent.process.stop()
    kept = ("id", "vendor", "state", "product", "class", "memoryBytes", "computeCapability", "pci")
    spec = record["spec"]
    spec["devices"] = [{key: one[key] for key in kept if key in one} for one in spec["devices"]]
    older = {
        "apiVersion": record["apiVersion"],
        "kind": record["kind"],
        "metadata": {
            "name": NODE,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": uid}],
        },
        "spec": {key: spec[key] for key in ("agentVersion", "simulated", "observedAt", "devices", "classes")},
    }
    plane.admin.delete(ACCELERATOR_NODES, NODE)
    plane.admin.apply(ACCELERATOR_NODES, older, manager="accelerator-agent", force=True)
    start("inventory", lease_namespace="accelerator-system", identity="one")

    def total() -> int | None:
        found = plane.admin.find(ACCELERATOR_CLASSES, "nvidia-h100-80gb") or {}
        count: int | None = found.get("status", {}).get("totalAccelerators")
        return count

    eventually(lambda: total() == 8, what="the class")


def test_fields_are_told_from_the_servers_words() -> None:
    one = (
        "failed to create typed patch object (/gpu-1; a/v1, Kind=A): .spec.new: field not declared in schema"
    )
    many = (
        "failed to create typed patch object (/gpu-1; a/v1, Kind=A): errors:\n"
        "  .spec.devices[0].new: field not declared in schema\n"
        '  .spec.devices[1].new: field not declared in schema\n  .spec.parts[name="a"].x: field not declared in schema'
    )
    assert undeclared_fields(one) == {".spec.new"}
    assert undeclared_fields(many) == {".spec.devices.new", ".spec.parts.x"}
    assert undeclared_fields("the server is on fire") == frozenset()
    value = {"spec": {"devices": [{"new": 1, "old": 2}, {"old": 3}], "new": 4}}
    assert without_fields(value, {".spec.devices.new"}) == {
        "spec": {"devices": [{"old": 2}, {"old": 3}], "new": 4}
    }


# The domain.


def allow(plane: ControlPlane, *domains: str) -> None:
    """Let the policy of the base know these domains, as the chart renders it."""
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    live = plane.admin.get(policies, "accelerator-agent-nodes")
    text = json.dumps(live["spec"])
    ours = "k.startsWith('accelerators.ome.io/') || k.contains('.accelerators.ome.io/')"
    assert ours in text
    wider = " || ".join(f"k.startsWith('{one}/') || k.contains('.{one}/')" for one in domains)
    plane.admin.replace(
        policies, "accelerator-agent-nodes", live | {"spec": json.loads(text.replace(ours, wider))}
    )


def test_a_change_of_the_domain_leaves_no_moment_without_labels(plane: ControlPlane, start: Start) -> None:
    agent = start()
    eventually(lambda: under(plane, DOMAIN).get(f"{DOMAIN}/class"), what="the labels")
    former = under(plane, DOMAIN)
    allow(plane, OTHER, DOMAIN)
    agent.process.stop()
    mark = plane.audit.mark()
    start(label_domain=OTHER, former_domains=DOMAIN)
    eventually(lambda: under(plane, OTHER).get(f"{OTHER}/class") == "nvidia-h100-80gb", what="the new labels")
    eventually(lambda: not under(plane, DOMAIN), what="the end of the former labels")
    assert {key.replace(OTHER, DOMAIN): value for key, value in under(plane, OTHER).items()} == former
    assert labels_of(plane)["team"] == "search"
    # One apply brings the new keys and takes the old: no moment between them.
    writes = [
        one
        for one in plane.audit.since(mark, user=":accelerator-agent", resource="nodes", writes_only=True)
        if one.status == 200
    ]
    assert len(writes) == 1


def test_a_domain_that_the_policy_does_not_know_costs_none_of_the_former_labels(
    plane: ControlPlane, start: Start
) -> None:
    agent = start()
    eventually(lambda: under(plane, DOMAIN).get(f"{DOMAIN}/class"), what="the labels")
    former = under(plane, DOMAIN)
    agent.process.stop()
    mark = plane.audit.mark()
    start(label_domain=OTHER, former_domains=DOMAIN)
    eventually(
        lambda: [
            one
            for one in plane.audit.since(mark, user=":accelerator-agent", resource="nodes", writes_only=True)
            if one.status == 403
        ],
        what="a refusal",
    )

    def passes() -> int:
        return len(
            [
                one
                for one in plane.audit.since(mark, user=":accelerator-agent", resource="nodes")
                if one.verb == "get"
            ]
        )

    now = passes()
    eventually(lambda: passes() >= now + 2, what="two more passes")
    assert under(plane, OTHER) == {}
    assert under(plane, DOMAIN) == former


# The end.


def test_prune_and_uninstall_leave_nothing_of_ours_and_everything_of_others(
    plane: ControlPlane, start: Start
) -> None:
    rival = {"metadata": {"labels": {f"{DOMAIN}/note": "by-hand"}}}
    plane.admin.patch(NODES, NODE, rival, manager="kubectl")
    theirs = {
        "apiVersion": ACCELERATOR_CLASSES.api_version,
        "kind": ACCELERATOR_CLASSES.kind,
        "metadata": {"name": "a-persons"},
        "spec": {"capabilities": {}, "discovery": {}, "vendor": "acme"},
    }
    before_labels = labels_of(plane)
    made = plane.admin.create(ACCELERATOR_CLASSES, theirs)
    agent, inventory = start(), start("inventory", lease_namespace="accelerator-system", identity="one")
    eventually(lambda: plane.admin.find(ACCELERATOR_CLASSES, "nvidia-h100-80gb"), what="the class")
    agent.process.stop()
    inventory.process.stop()

    def prune() -> AgentProcess:
        done = start("prune", "--classes", "-o", "json", kubeconfig=str(plane.admin_kubeconfig))
        eventually(lambda: done.process.pid is None, seconds=30, what="the end of prune")
        assert done.process.returncode == 0, done.log
        return done

    prune()
    assert labels_of(plane) == before_labels
    assert plane.admin.items(ACCELERATOR_NODES) == []
    assert plane.admin.items(ACCELERATOR_CLASSES) == [made]
    assert json.loads(prune().log.strip())["labels"] == {}
    plane.kubectl("delete", "--wait=false", "-k", str(DAEMONSET_FOLDER))
    ours = "app.kubernetes.io/name=accelerator-discovery-agent"
    kinds = (
        "clusterroles,clusterrolebindings,priorityclasses,validatingadmissionpolicies,"
        "validatingadmissionpolicybindings"
    )
    assert plane.kubectl("get", kinds, "-l", ours, "-o", "name").stdout == ""
    eventually(lambda: plane.admin.find(CRDS, CRD_NAME) is None, what="the end of our definition")
    assert plane.admin.items(ACCELERATOR_CLASSES) == [made]
    assert labels_of(plane) == before_labels
    owners = [
        entry["manager"]
        for entry in plane.admin.get(NODES, NODE)["metadata"]["managedFields"]
        if entry["manager"].startswith("accelerator-")
    ]
    assert owners == []
