"""`match` against a real API server: what it reads, in pages, and what it answers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from agent.cluster import ACCELERATOR_CLASSES, ACCELERATOR_NODES
from agent.commands.match_cluster import ClusterReader, Progress
from agent.edges.cluster import KubernetesCluster, usual_configuration
from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import make_pod, ready_node
from tests.core.matching.kit import DOMAIN, a_device, a_record, a_runtime, class_of

H100 = "nvidia-h100-80gb"


def fill(cluster: ControlPlane, count: int) -> None:
    """Make a class, `count` Nodes of eight devices with their records, and a Pod that holds six on the first."""
    cluster.admin.create(ACCELERATOR_CLASSES, class_of(H100))
    for number in range(count):
        name = f"gpu-{number}"
        labels = {f"class.{DOMAIN}/{H100}": "true"}
        ready_node(cluster.admin, name, labels=labels, resources={"nvidia.com/gpu": "8"})
        record = a_record(name, [a_device(H100, index) for index in range(8)])
        cluster.admin.create(ACCELERATOR_NODES, record)
    make_pod(cluster.admin, "busy", node="gpu-0", requests={"nvidia.com/gpu": "6"})


def match(cluster: ControlPlane, path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    config = str(cluster.admin_kubeconfig)
    command = [sys.executable, "-m", "agent", "match", "-f", str(path), "--kubeconfig", config, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def runtime_file(tmp_path: Path) -> Path:
    path = tmp_path / "runtime.yaml"
    path.write_text(yaml.safe_dump(a_runtime(gpus=4, minMemory=80, acceleratorClasses=[H100])))
    return path


def test_match_answers_from_classes_nodes_records_and_pods(fresh_cluster: ControlPlane, runtime_file: Path):
    fill(fresh_cluster, 3)
    result = match(fresh_cluster, runtime_file)
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)[0]
    assert [(node["name"], node["free"], node["usable"]) for node in document["nodes"]] == [
        ("gpu-0", 2, 8),
        ("gpu-1", 8, 8),
        ("gpu-2", 8, 8),
    ]
    assert (document["source"], document["classes"][0]["nodesNow"]) == ("the cluster", 2)


def test_a_cluster_without_classes_is_told_from_one_that_does_not_answer(
    no_classes: ControlPlane, runtime_file: Path
):
    result = match(no_classes, runtime_file)
    assert result.returncode == 3
    assert "no-classes" in {finding["id"] for finding in json.loads(result.stdout)[0]["findings"]}


def test_nodes_are_read_in_pages(fresh_cluster: ControlPlane):
    fill(fresh_cluster, 5)
    requests: list[str] = []

    def observe(*, verb: str, resource: str, status: int) -> None:
        requests.append(f"{verb} {resource} {status}")

    source = usual_configuration(str(fresh_cluster.admin_kubeconfig), context=None)
    cluster = KubernetesCluster(source, observe=observe, page_size=2)
    read = ClusterReader(cluster, Progress(sys.stderr, lambda: 0.0)).nodes()
    assert (len(read.nodes), len(read.records)) == (5, 5)
    assert read.requested == {"gpu-0": {"nvidia.com/gpu": 6}}
    assert requests == ["list nodes 200"] * 3 + ["list acceleratornodes 200"] * 3 + ["list pods 200"]
