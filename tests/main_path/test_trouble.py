"""Trouble that comes while agents and controller run as processes of their own: hangs, suspension, devices that fail."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil

from agent.cluster import ACCELERATOR_NODES, EVENTS, NODES
from agent.edges.cluster import KubernetesCluster, kubeconfig
from agent.node_pass import NodePass, NodePassOptions
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fault_proxy import FaultProxy
from tests.cluster.faults import Silence
from tests.cluster.objects import (
    INVENTORY_ACCOUNT,
    account_token,
    delete_pod,
    eventually,
    node_token,
    ready_node,
)
from tests.hardware import ManualClock, fake_facts
from tests.main_path.agent_process import AgentProcess
from tests.main_path.conftest import StartAgent

DOMAIN = "accelerators.ome.io"
H100 = "nvidia-h100-80gb"


def labels_of(cluster: ControlPlane, node: str) -> dict[str, str]:
    return dict(cluster.admin.get(NODES, node)["metadata"].get("labels") or {})


def passes_of(agent: AgentProcess) -> int:
    status, line = agent.get("/readyz")
    return int(line.split()[0]) if status == 200 else 0


def write_machine(file: Path, **fields: Any) -> None:
    """Write a machine of two GPUs, at once and whole: an agent that runs on it reads it again."""
    fresh = file.with_suffix(".fresh")
    fresh.write_text(json.dumps({"name": "two", "devices": [{"board": "h100-sxm", "count": 2}], **fields}))
    fresh.replace(file)


def test_fr_008_a_gpu_that_hangs_at_the_first_probe_is_named_and_the_others_are_labelled_in_time(
    fresh_cluster: ControlPlane, start_agent: StartAgent
) -> None:
    timeout = 3.0
    ready_node(fresh_cluster.admin, "gpu-1")
    agent = start_agent("gpu-1", "device-hangs", probe_timeout=f"{timeout:g}s")
    eventually(lambda: agent.port)
    began = time.monotonic()
    eventually(lambda: labels_of(fresh_cluster, "gpu-1").get(f"{DOMAIN}/count") == "7")
    assert time.monotonic() - began < 2 * timeout
    record = eventually(lambda: fresh_cluster.admin.find(ACCELERATOR_NODES, "gpu-1"))
    silent = [device for device in record["spec"]["devices"] if device["state"] != "ok"]
    assert [(device["index"], device["state"], device["reasons"]) for device in silent] == [
        (3, "unreadable", ["no-answer"])
    ]
    conditions = {one["type"]: one for one in record["status"]["conditions"]}
    assert silent[0]["id"] in conditions["AllDevicesHealthy"]["message"]
    assert labels_of(fresh_cluster, "gpu-1")[f"class.{DOMAIN}/{H100}"] == "true"


def test_fr_115_an_agent_that_was_suspended_catches_up_with_one_probe_and_says_so(
    fresh_cluster: ControlPlane, start_agent: StartAgent
) -> None:
    ready_node(fresh_cluster.admin, "gpu-1")
    agent = start_agent("gpu-1", "h100x8")
    eventually(lambda: passes_of(agent) >= 2)
    labels = labels_of(fresh_cluster, "gpu-1")
    assert agent.process.pid is not None
    family = [agent.process.pid]
    family += [child.pid for child in psutil.Process(agent.process.pid).children(recursive=True)]
    before = passes_of(agent)
    for pid in family:
        os.kill(pid, signal.SIGSTOP)
    # Time must truly pass: the clocks of a stopped process cannot be handed in.
    time.sleep(6.0)
    for pid in family:
        os.kill(pid, signal.SIGCONT)
    began = time.monotonic()
    eventually(lambda: passes_of(agent) > before)
    # One that was due, and those of the seconds since; not the six that were missed.
    assert passes_of(agent) - before <= 2 + (time.monotonic() - began) / 0.9
    eventually(lambda: agent.metric('accelerator_probe_gaps_total{probe="nvidia"}') == 1.0)
    assert agent.get("/healthz")[0] == 200
    assert labels_of(fresh_cluster, "gpu-1") == labels
    assert agent.metric('accelerator_probe_success{probe="nvidia"}') == 1.0


def test_a_gpu_that_fails_and_recovers_is_told_by_one_event_each(
    fresh_cluster: ControlPlane, start_agent: StartAgent, tmp_path: Path
) -> None:
    machine = tmp_path / "two.json"
    write_machine(machine)
    ready_node(fresh_cluster.admin, "gpu-1", resources={"nvidia.com/gpu": "2"})
    agent = start_agent("gpu-1", str(machine))
    token = account_token(fresh_cluster.admin, INVENTORY_ACCOUNT)
    environment = {"KUBECONFIG": str(fresh_cluster.kubeconfig(token)), "ACCELERATOR_LISTEN": "127.0.0.1:0"}

    def told() -> list[str]:
        events = fresh_cluster.admin.items(EVENTS, namespace="default")
        return sorted(one["reason"] for one in events if one["involvedObject"]["kind"] == "Node")

    with AgentProcess("inventory", log=tmp_path / "inventory.log", environment=environment) as controller:
        eventually(lambda: controller.metric("accelerator_inventory_leader") == 1.0)
        eventually(lambda: controller.metric("accelerator_inventory_records") == 1.0)
        lost = {"function": "nvmlDevice*", "but_not": "nvmlDeviceGetHandleBy*", "device": 1, "code": 15}
        write_machine(machine, failures=[lost])
        eventually(lambda: labels_of(fresh_cluster, "gpu-1")[f"{DOMAIN}/count"] == "1")
        eventually(lambda: told() == ["AcceleratorLost"])
        passes = passes_of(agent)
        eventually(lambda: passes_of(agent) >= passes + 4)
        assert told() == ["AcceleratorLost"]
        write_machine(machine)
        eventually(lambda: labels_of(fresh_cluster, "gpu-1")[f"{DOMAIN}/count"] == "2")
        eventually(lambda: told() == ["AcceleratorLost", "AcceleratorRecovered"])


def test_a_stop_is_over_in_time_also_while_the_server_is_silent(
    fresh_cluster: ControlPlane, fault_proxy: FaultProxy, tmp_path: Path
) -> None:
    ready_node(fresh_cluster.admin, "gpu-1")
    config = fresh_cluster.kubeconfig(node_token(fresh_cluster.admin, "gpu-1"), server=fault_proxy.url)
    environment = {
        "KUBECONFIG": str(config),
        "ACCELERATOR_NODE_NAME": "gpu-1",
        "ACCELERATOR_FAKE": "t4",
        "ACCELERATOR_ALLOW_SIMULATED": "true",
        "ACCELERATOR_LISTEN": "127.0.0.1:0",
        "ACCELERATOR_PROBE_INTERVAL": "1s",
    }
    with AgentProcess("node", log=tmp_path / "agent.log", environment=environment) as agent:
        eventually(lambda: passes_of(agent) >= 2)
        silent = fault_proxy.add(Silence())
        eventually(lambda: silent.hits)
        began = time.monotonic()
        agent.process.stop(seconds=15.0)
        assert time.monotonic() - began < 5.0
        assert agent.process.returncode == 0


def test_a_record_that_nobody_collects_is_written_over_with_the_rights_of_an_agent(
    fresh_cluster: ControlPlane,
) -> None:
    """No collector runs here, as when it does not hear of Nodes; the Node's uid is read by the controller."""
    clock = ManualClock()
    found = fake_facts("t4")

    def agent() -> NodePass:
        config = fresh_cluster.kubeconfig(node_token(fresh_cluster.admin, "gpu-1"))
        options = NodePassOptions(node_name="gpu-1", agent_version="0.1.0", allow_simulated=True)
        cluster = KubernetesCluster(kubeconfig(str(config)))
        return NodePass(lambda _: found, cluster, options, now=clock, jitter=lambda: 1.0)

    ready_node(fresh_cluster.admin, "gpu-1")
    agent().run()
    fresh_cluster.admin.delete(NODES, "gpu-1")
    again = ready_node(fresh_cluster.admin, "gpu-1")
    delete_pod(fresh_cluster.admin, "accelerator-agent-gpu-1", namespace="accelerator-system")
    second = agent()
    outcomes = []
    for _ in range(3):
        report = second.run()
        outcomes.append({one.target: one.reason for one in report.published}["record"])
        clock.advance(60.0)
    assert outcomes == ["OwnerIsGone", "OwnerIsGone", "Written"]
    record = fresh_cluster.admin.get(ACCELERATOR_NODES, "gpu-1")
    assert record["spec"]["nodeUID"] == again["metadata"]["uid"]
    assert record["metadata"]["ownerReferences"][0]["uid"] != again["metadata"]["uid"]
