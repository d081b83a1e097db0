"""Agents and controller as separate processes on a real API server: from fake hardware to a class with totals."""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from agent.cluster import ACCELERATOR_CLASSES, NODES, Object
from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import (
    INVENTORY_ACCOUNT,
    account_token,
    eventually,
    ready_node,
    set_allocatable,
)
from tests.main_path.agent_process import AgentProcess
from tests.main_path.conftest import StartAgent

pytestmark = pytest.mark.usefixtures("controllers")

H100 = "nvidia-h100-80gb"


def class_of(cluster: ControlPlane, name: str) -> Object:
    return cluster.admin.find(ACCELERATOR_CLASSES, name) or {}


def totals(cluster: ControlPlane, name: str) -> tuple[int | None, int | None]:
    status = class_of(cluster, name).get("status", {})
    return status.get("totalAccelerators"), status.get("availableAccelerators")


def command(*arguments: str, config: Path | None = None) -> subprocess.CompletedProcess[str]:
    settings = () if config is None else ("--kubeconfig", str(config))
    return subprocess.run(
        [sys.executable, "-m", "agent", *arguments, *settings],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def controller(fresh_cluster: ControlPlane, tmp_path: Path) -> AgentProcess:
    token = account_token(fresh_cluster.admin, INVENTORY_ACCOUNT)
    environment = {
        "KUBECONFIG": str(fresh_cluster.kubeconfig(token)),
        "ACCELERATOR_IDENTITY": "only",
        "ACCELERATOR_LISTEN": "127.0.0.1:0",
    }
    with ExitStack() as running:
        process = AgentProcess("inventory", log=tmp_path / "controller.log", environment=environment)
        yield running.enter_context(process)


def test_two_agents_and_the_controller_make_true_classes(
    fresh_cluster: ControlPlane, start_agent: StartAgent, controller: AgentProcess
) -> None:
    for node, fake, gpus in (("gpu-1", "h100x8", 8), ("gpu-2", "h100x8-one-lost", 7)):
        ready_node(fresh_cluster.admin, node, resources={"nvidia.com/gpu": str(gpus)})
        start_agent(node, fake)
    eventually(lambda: totals(fresh_cluster, H100) == (16, 15), seconds=40)
    live = class_of(fresh_cluster, H100)
    conditions = {entry["type"]: (entry["status"], entry["reason"]) for entry in live["status"]["conditions"]}
    assert conditions["Ready"][0] == "True"
    assert conditions["Healthy"][0] == "False"
    assert conditions["Consistent"][0] == "True"
    assert conditions["Simulated"][0] == "True"
    assert live["spec"]["discovery"]["nodeSelector"] == {f"class.accelerators.ome.io/{H100}": "true"}
    assert controller.metric(f'accelerator_class_devices{{class="{H100}",state="usable"}}') == 15.0
    set_allocatable(fresh_cluster.admin, "gpu-1", {"nvidia.com/gpu": "6"})
    eventually(lambda: totals(fresh_cluster, H100) == (16, 13), seconds=20)
    fresh_cluster.admin.delete(NODES, "gpu-1")
    eventually(lambda: totals(fresh_cluster, H100) == (8, 7), seconds=20)


def test_when_nothing_changes_nobody_writes_but_for_the_lease(
    fresh_cluster: ControlPlane, start_agent: StartAgent, controller: AgentProcess
) -> None:
    ready_node(fresh_cluster.admin, "gpu-1", resources={"nvidia.com/gpu": "8"})
    agent = start_agent("gpu-1", "h100x8")
    eventually(lambda: totals(fresh_cluster, H100) == (8, 8), seconds=40)
    version = class_of(fresh_cluster, H100)["metadata"]["resourceVersion"]
    mark = fresh_cluster.audit.mark()
    passes = int(agent.get("/readyz")[1].split()[0])
    eventually(lambda: int(agent.get("/readyz")[1].split()[0]) >= passes + 5, seconds=30)
    ours = ("accelerator-agent", "accelerator-inventory")
    writes = {
        (request.verb, request.resource)
        for request in fresh_cluster.audit.since(mark, writes_only=True)
        if request.user.endswith(ours)
    }
    assert writes <= {("update", "leases")}
    assert class_of(fresh_cluster, H100)["metadata"]["resourceVersion"] == version
    assert controller.process.pid is not None


def test_an_agent_with_inventory_needs_no_controller(fresh_cluster: ControlPlane, tmp_path: Path) -> None:
    ready_node(fresh_cluster.admin, "gpu-1", resources={"nvidia.com/gpu": "8"})
    environment = {
        # Its overlay grants both roles; here the administrator's token stands for them.
        "KUBECONFIG": str(fresh_cluster.admin_kubeconfig),
        "ACCELERATOR_NODE_NAME": "gpu-1",
        "ACCELERATOR_FAKE": "h100x8",
        "ACCELERATOR_ALLOW_SIMULATED": "true",
        "ACCELERATOR_LISTEN": "127.0.0.1:0",
        "ACCELERATOR_PROBE_INTERVAL": "1s",
    }
    process = AgentProcess("node", "--with-inventory", log=tmp_path / "single.log", environment=environment)
    with process as agent:
        eventually(lambda: totals(fresh_cluster, H100) == (8, 8), seconds=40)
        assert agent.metric("accelerator_inventory_leader") == 1.0
        assert agent.metric('accelerator_probe_success{probe="nvidia"}') == 1.0


def test_the_object_that_classes_prints_is_accepted_by_a_real_server(fresh_cluster: ControlPlane) -> None:
    printed = command("classes", "--fake", "h100x8", "-o", "yaml")
    assert printed.returncode == 0, printed.stderr
    object_ = yaml.safe_load(printed.stdout)
    capabilities = object_["spec"]["capabilities"]
    assert capabilities["memoryGB"] == "80Gi"
    assert capabilities["computeCapability"] == "9.0"
    assert capabilities["memoryBandwidthGBps"] == "3350"
    assert capabilities["performance"] == {"fp16Tflops": 989, "fp32Tflops": 67, "int8Tops": 1979}
    assert {"fp8", "nvlink", "mig"} <= set(capabilities["features"])
    assert object_["spec"]["discovery"]["deviceIDs"] == ["2330"]
    bandwidth = json.loads(object_["metadata"]["annotations"]["accelerators.ome.io/memory-bandwidth-gbps"])
    assert bandwidth == {"catalogued": 3350, "derived": 3352}
    fresh_cluster.kubectl("apply", "--server-side", "-f", "-", stdin=printed.stdout)
    held = class_of(fresh_cluster, H100)
    assert held["spec"] == object_["spec"]


def test_the_fleet_is_printed_as_a_table_and_pruned_to_nothing(
    fresh_cluster: ControlPlane, start_agent: StartAgent
) -> None:
    config = fresh_cluster.admin_kubeconfig
    ready_node(fresh_cluster.admin, "gpu-1", labels={"team": "search"}, resources={"nvidia.com/gpu": "8"})
    agent = start_agent("gpu-1", "h100x8")
    eventually(
        lambda: command("classes", "--from-cluster", "-o", "json", config=config).stdout.strip() != "[]"
    )
    table = command("classes", "--from-cluster", "-o", "table", config=config).stdout
    assert table.splitlines()[1].split()[:7] == [H100, "1", "8", "8", "8", "80Gi", "9.0"]
    difference = command("inventory", "--once", "-o", "table", config=config)
    assert difference.returncode == 1
    assert difference.stdout.startswith(f"{H100} would be made:")
    agent.process.stop()
    pruned = command("prune", "-o", "json", config=config)
    assert pruned.returncode == 0, pruned.stderr
    labels = fresh_cluster.admin.get(NODES, "gpu-1")["metadata"]["labels"]
    assert [key for key in labels if "accelerators.ome.io" in key] == []
    assert labels["team"] == "search"
    again = json.loads(command("prune", "-o", "json", config=config).stdout)
    assert again["labels"] == {}
    assert again["records"] == []
