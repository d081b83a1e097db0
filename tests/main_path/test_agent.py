"""The agent as its own process, with its own token, on a real API server."""

from collections.abc import Callable
from pathlib import Path

import pytest

from agent.cluster import ACCELERATOR_NODES, NODES, Object
from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import eventually, make_pod, ready_node
from tests.main_path.agent_process import AgentProcess
from tests.main_path.conftest import StartAgent

pytestmark = pytest.mark.usefixtures("controllers_and_scheduler")

DOMAIN = "accelerators.ome.io"


def labels_of(cluster: ControlPlane, node: str) -> dict[str, str]:
    return dict(cluster.admin.get(NODES, node)["metadata"].get("labels") or {})


def ours(labels: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if DOMAIN in key}


def labelled(cluster: ControlPlane, node: str, key: str, value: str) -> Callable[[], bool]:
    return lambda: labels_of(cluster, node).get(key) == value


def record_of(cluster: ControlPlane, node: str) -> Object | None:
    return cluster.admin.find(ACCELERATOR_NODES, node)


def condition(record: Object | None, type_: str) -> Object:
    conditions = ((record or {}).get("status") or {}).get("conditions", [])
    return next((entry for entry in conditions if entry["type"] == type_), {})


def settled(agent: AgentProcess) -> Callable[[], bool]:
    """Tell whether some passes have ended, of which all but the first find nothing to write."""
    return lambda: passes_of(agent) >= 3


def passes_of(agent: AgentProcess) -> int:
    """Return how many passes have ended; 0 while it does not listen."""
    status, line = agent.get("/readyz")
    return int(line.split()[0]) if status == 200 else 0


def test_labels_and_record_land_and_foreign_labels_stay(
    fresh_cluster: ControlPlane, start_agent: StartAgent
) -> None:
    ready_node(fresh_cluster.admin, "gpu-1", labels={"team": "search", f"{DOMAIN}/note": "by-hand"})
    start_agent("gpu-1", "h100x8")
    eventually(labelled(fresh_cluster, "gpu-1", f"{DOMAIN}/class", "nvidia-h100-80gb"))
    labels = labels_of(fresh_cluster, "gpu-1")
    assert labels["team"] == "search"
    assert labels[f"{DOMAIN}/note"] == "by-hand"
    assert labels[f"{DOMAIN}/simulated"] == "true"
    assert labels[f"count.{DOMAIN}/nvidia-h100-80gb"] == "8"
    record = eventually(lambda: record_of(fresh_cluster, "gpu-1"))
    assert record["spec"]["classes"] == [
        {"name": "nvidia-h100-80gb", "resource": "nvidia.com/gpu", "total": 8, "usable": 8}
    ]
    assert record["status"]["summary"] == {"classes": "nvidia-h100-80gb", "count": 8, "healthy": "8/8"}
    assert {entry["type"]: entry["status"] for entry in record["status"]["conditions"]} == {
        "ProbeSucceeded": "True",
        "DriverReady": "True",
        "AllDevicesHealthy": "True",
        "InventoryComplete": "True",
        "LabelsPublished": "True",
    }


def test_fr_090_a_second_pass_writes_nothing(fresh_cluster: ControlPlane, start_agent: StartAgent) -> None:
    ready_node(fresh_cluster.admin, "gpu-1")
    agent = start_agent("gpu-1", "h100x8")
    eventually(settled(agent))
    version = fresh_cluster.admin.get(NODES, "gpu-1")["metadata"]["resourceVersion"]
    record_version = fresh_cluster.admin.get(ACCELERATOR_NODES, "gpu-1")["metadata"]["resourceVersion"]
    mark = fresh_cluster.audit.mark()
    passes = passes_of(agent)
    eventually(lambda: passes_of(agent) >= passes + 3)
    requests = fresh_cluster.audit.since(mark, user="accelerator-agent")
    assert {(request.verb, request.resource, request.name) for request in requests} == {
        ("get", "nodes", "gpu-1"),
        ("get", "acceleratornodes", "gpu-1"),
    }
    assert fresh_cluster.admin.get(NODES, "gpu-1")["metadata"]["resourceVersion"] == version
    assert (
        fresh_cluster.admin.get(ACCELERATOR_NODES, "gpu-1")["metadata"]["resourceVersion"] == record_version
    )


def test_a_restart_writes_nothing(fresh_cluster: ControlPlane, start_agent: StartAgent) -> None:
    ready_node(fresh_cluster.admin, "gpu-1")
    first = start_agent("gpu-1", "h100x8")
    eventually(settled(first))
    first.process.stop()
    mark = fresh_cluster.audit.mark()
    second = start_agent("gpu-1", "h100x8")
    eventually(settled(second))
    assert fresh_cluster.audit.since(mark, user="accelerator-agent", writes_only=True) == []


def test_other_hardware_after_a_restart_leaves_no_label_of_the_old(
    fresh_cluster: ControlPlane, start_agent: StartAgent
) -> None:
    ready_node(fresh_cluster.admin, "gpu-1", labels={"team": "search"})
    first = start_agent("gpu-1", "h100x8")
    eventually(labelled(fresh_cluster, "gpu-1", f"{DOMAIN}/family", "hopper"))
    first.process.kill()
    start_agent("gpu-1", "t4")
    eventually(labelled(fresh_cluster, "gpu-1", f"{DOMAIN}/family", "turing"))
    labels = labels_of(fresh_cluster, "gpu-1")
    assert f"count.{DOMAIN}/nvidia-h100-80gb" not in labels
    assert f"precision.{DOMAIN}/fp8" not in labels
    assert labels[f"class.{DOMAIN}/nvidia-t4-16gb"] == "true"
    assert labels["team"] == "search"


def test_a_machine_that_lost_its_gpus_loses_labels_and_devices_once_it_was_asked(
    fresh_cluster: ControlPlane, start_agent: StartAgent
) -> None:
    ready_node(fresh_cluster.admin, "gpu-1")
    first = start_agent("gpu-1", "h100x8")
    eventually(lambda: record_of(fresh_cluster, "gpu-1"))
    first.process.stop()
    start_agent("gpu-1", "no-gpu")
    eventually(lambda: not ours(labels_of(fresh_cluster, "gpu-1")))
    record = eventually(
        lambda: (found := record_of(fresh_cluster, "gpu-1")) and "devices" not in found["spec"] and found
    )
    assert record["status"]["summary"] == {"classes": "none", "count": 0, "healthy": "0/0"}


def test_a_node_without_accelerators_is_never_written(
    fresh_cluster: ControlPlane, start_agent: StartAgent
) -> None:
    ready_node(fresh_cluster.admin, "cpu-1")
    mark = fresh_cluster.audit.mark()
    agent = start_agent("cpu-1", "no-gpu")
    eventually(settled(agent))
    assert fresh_cluster.audit.since(mark, user="accelerator-agent", writes_only=True) == []
    assert record_of(fresh_cluster, "cpu-1") is None
    assert agent.get("/healthz")[0] == 200


def test_a_node_made_again_gets_its_labels_back_and_its_record_goes_with_the_old(
    fresh_cluster: ControlPlane, start_agent: StartAgent
) -> None:
    ready_node(fresh_cluster.admin, "gpu-1")
    start_agent("gpu-1", "t4")
    old = eventually(lambda: record_of(fresh_cluster, "gpu-1"))
    fresh_cluster.admin.delete(NODES, "gpu-1")
    eventually(lambda: fresh_cluster.admin.find(NODES, "gpu-1") is None)
    ready_node(fresh_cluster.admin, "gpu-1")
    eventually(labelled(fresh_cluster, "gpu-1", f"{DOMAIN}/family", "turing"))
    new = eventually(
        lambda: (
            (found := record_of(fresh_cluster, "gpu-1"))
            and found["metadata"]["uid"] != old["metadata"]["uid"]
            and found
        )
    )
    assert (
        new["metadata"]["ownerReferences"][0]["uid"]
        == fresh_cluster.admin.get(NODES, "gpu-1")["metadata"]["uid"]
    )


def test_a_record_goes_with_its_node(fresh_cluster: ControlPlane, start_agent: StartAgent) -> None:
    ready_node(fresh_cluster.admin, "gpu-1")
    agent = start_agent("gpu-1", "t4")
    eventually(lambda: record_of(fresh_cluster, "gpu-1"))
    fresh_cluster.admin.delete(NODES, "gpu-1")
    eventually(lambda: record_of(fresh_cluster, "gpu-1") is None)
    eventually(lambda: 'reason="NodeNotFound"' in agent.get("/metrics")[1])


@pytest.mark.parametrize(
    ("fake", "reason", "verdict"),
    [
        pytest.param("no-driver", "DriverNotLoaded", "no-driver", id="no driver"),
        pytest.param("version-mismatch", "DriverLibraryMismatch", "version-mismatch", id="mismatch"),
        pytest.param("no-runtime", "LibraryNotVisible", "not-in-container", id="pod without the runtime"),
        pytest.param("no-answer", None, "no-answer", id="no answer"),
        pytest.param("crash", None, "no-answer", id="crash"),
    ],
)
def test_could_not_ask_changes_no_label_and_says_why(
    fresh_cluster: ControlPlane,
    start_agent: StartAgent,
    fake: str,
    reason: str | None,
    verdict: str,
) -> None:
    ready_node(fresh_cluster.admin, "gpu-1")
    first = start_agent("gpu-1", "h100x8")
    eventually(settled(first))
    first.process.stop()
    before = labels_of(fresh_cluster, "gpu-1")
    devices = fresh_cluster.admin.get(ACCELERATOR_NODES, "gpu-1")["spec"]["devices"]
    agent = start_agent("gpu-1", fake)
    failed = eventually(
        lambda: (
            (found := condition(record_of(fresh_cluster, "gpu-1"), "ProbeSucceeded")).get("status") == "False"
            and found
        )
    )
    assert reason is None or failed["reason"] == reason
    assert labels_of(fresh_cluster, "gpu-1") == before
    assert fresh_cluster.admin.get(ACCELERATOR_NODES, "gpu-1")["spec"]["devices"] == devices
    assert agent.metric('accelerator_probe_success{probe="nvidia"}') == 0.0
    assert (
        agent.metric(
            f'accelerator_probe_verdict{{probe="nvidia",reason="{failed["reason"]}",verdict="{verdict}"}}'
        )
        == 1.0
    )
    assert agent.get("/readyz")[0] == 200


def test_selectors_find_the_right_nodes(fresh_cluster: ControlPlane, start_agent: StartAgent) -> None:
    for node, fake in (("a-t4", "t4"), ("b-l40s", "l40s"), ("c-b200", "b200x8")):
        ready_node(fresh_cluster.admin, node)
        start_agent(node, fake)
    for node in ("a-t4", "b-l40s", "c-b200"):
        eventually(lambda node=node: f"{DOMAIN}/sm" in labels_of(fresh_cluster, node))
    found = fresh_cluster.kubectl("get", "nodes", "-l", f"{DOMAIN}/family=blackwell", "-o", "name").stdout
    assert found.split() == ["node/c-b200"]
    newer_than_ada = {"key": f"{DOMAIN}/sm", "operator": "Gt", "values": ["89"]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [newer_than_ada]}]
            }
        }
    }
    make_pod(fresh_cluster.admin, "picky", spec={"affinity": affinity})
    placed = eventually(
        lambda: fresh_cluster.kubectl("get", "pod", "picky", "-o", "jsonpath={.spec.nodeName}").stdout
    )
    assert placed == "c-b200"


def test_the_exit_status_of_a_stop_is_0_also_while_a_probe_hangs(
    fresh_cluster: ControlPlane, start_agent: StartAgent
) -> None:
    ready_node(fresh_cluster.admin, "gpu-1")
    agent = start_agent("gpu-1", "no-answer", probe_timeout="60s")
    eventually(lambda: agent.port)
    agent.process.stop(seconds=5)
    assert agent.process.returncode == 0


XID_AFTER_TWO_SECONDS = """
name: xid
devices:
- {board: h100-sxm}
- {board: h100-sxm}
events:
- {device: 1, xid: 79, after_seconds: 2}
"""


def test_an_xid_event_reaches_label_and_record_long_before_the_next_interval(
    fresh_cluster: ControlPlane, start_agent: StartAgent, tmp_path: Path
) -> None:
    scenario = tmp_path / "xid.yaml"
    scenario.write_text(XID_AFTER_TWO_SECONDS)
    ready_node(fresh_cluster.admin, "gpu-1")
    agent = start_agent("gpu-1", str(scenario), probe_interval="10m")
    eventually(labelled(fresh_cluster, "gpu-1", f"{DOMAIN}/health", "ok"))
    eventually(labelled(fresh_cluster, "gpu-1", f"{DOMAIN}/health", "failed"), seconds=10)
    sick = eventually(
        lambda: [
            device
            for device in fresh_cluster.admin.get(ACCELERATOR_NODES, "gpu-1")["spec"]["devices"]
            if device["state"] != "ok"
        ]
    )
    assert [(device["index"], device["state"], device["reasons"]) for device in sick] == [
        (1, "lost", ["xid-79"])
    ]
    assert labels_of(fresh_cluster, "gpu-1")[f"count.{DOMAIN}/nvidia-h100-80gb"] == "1"
    assert agent.metric(f'accelerator_device_xid_errors_total{{id="{sick[0]["id"]}",xid="79"}}') == 1.0


def test_an_announced_driver_upgrade_ends_the_listening(
    fresh_cluster: ControlPlane, start_agent: StartAgent, tmp_path: Path
) -> None:
    scenario = tmp_path / "xid.yaml"
    scenario.write_text(XID_AFTER_TWO_SECONDS)
    ready_node(
        fresh_cluster.admin, "gpu-1", labels={"nvidia.com/gpu-driver-upgrade-state": "upgrade-required"}
    )
    agent = start_agent("gpu-1", str(scenario))
    eventually(lambda: passes_of(agent) >= 6, seconds=30)
    assert labels_of(fresh_cluster, "gpu-1")[f"{DOMAIN}/health"] == "ok"
    assert "xid event" not in agent.log
