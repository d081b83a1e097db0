"""The controller's process against a real API server with 500 pools and 10,000 pods that real servers stand behind.

Takes the number of pods as its argument (10,000). Each pod is asked and labelled. Builds the control plane of the tests on
first use.
"""

import re
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agent.cluster import INFERENCE_POOLS, PODS
from bench.inventory_cluster import _add_node, _await, _peak_mib
from tests.cluster.control_plane import ControlPlane
from tests.cluster.definitions import install_crd
from tests.cluster.objects import CLASS_CRD, NODE_CRD, make_namespace
from tests.cluster.program import find_or_build
from tests.main_path.agent_process import AgentProcess
from tests.pools import expositions
from tests.pools.conftest import POOL_CRD
from tests.pools.servers import Servers, free_port

POOLS, NAMESPACES, NODES, SERVERS = 500, 10, 1250, 16
MEMORY_BUDGET_MIB = 300.0
LABEL = "accelerators.ome.io/pools"


def main(count: int) -> int:
    """Print the figures; the exit status tells whether the budget holds."""
    with tempfile.TemporaryDirectory() as folder, Servers() as servers:
        plane = ControlPlane(find_or_build(), Path(folder))
        plane.start()
        try:
            return _measured(plane, Path(folder), servers, count)
        finally:
            plane.stop()


def _measured(plane: ControlPlane, folder: Path, servers: Servers, count: int) -> int:
    for definition in (NODE_CRD, CLASS_CRD, POOL_CRD):
        install_crd(plane.admin, definition)
    make_namespace(plane.admin, "accelerator-system")
    port = free_port()
    addresses = [servers.model_server(expositions.vllm(), port=port).address for _ in range(SERVERS)]
    began = time.monotonic()
    _make(plane, count, port, addresses)
    print(f"{POOLS} pools, {count} pods, {NODES} Nodes made in {time.monotonic() - began:.0f} s", flush=True)
    environment = {"KUBECONFIG": str(plane.admin_kubeconfig), "ACCELERATOR_LISTEN": "127.0.0.1:0"}
    began = time.monotonic()
    with AgentProcess("inventory", log=folder / "inventory.log", environment=environment) as process:
        _await(lambda: _endpoints(process) == count, 300.0)
        print(f"until the metrics show every endpoint: {time.monotonic() - began:.1f} s", flush=True)
        _await(lambda: _endpoints(process, engine="vllm") == count, 900.0)
        print(f"until every endpoint was asked: {time.monotonic() - began:.1f} s", flush=True)
        _await(lambda: (_written(process) or 0) >= count, 900.0)
        print(f"until every pod was labelled: {time.monotonic() - began:.1f} s")
        peak = _peak_mib(process.process.pid)
    print(f"peak memory of the process: {peak:.0f} MiB (budget {MEMORY_BUDGET_MIB:.0f} MiB)")
    return 0 if peak <= MEMORY_BUDGET_MIB else 1


def _make(plane: ControlPlane, count: int, port: int, addresses: list[str]) -> None:
    for number in range(NAMESPACES):
        make_namespace(plane.admin, f"team-{number}")
        plane.admin.patch("/api/v1/namespaces", f"team-{number}", {"metadata": {"labels": {LABEL: "true"}}})
    for number in range(POOLS):
        body = {
            "apiVersion": INFERENCE_POOLS.api_version,
            "kind": INFERENCE_POOLS.kind,
            "metadata": {"name": f"pool-{number}"},
            "spec": {
                "selector": {"matchLabels": {"app": f"pool-{number}"}},
                "targetPorts": [{"number": port}],
            },
        }
        plane.admin.create(INFERENCE_POOLS, body, namespace=f"team-{number % NAMESPACES}")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: _add_node(plane, number), range(NODES)))
        list(pool.map(lambda number: _add_pod(plane, number, addresses), range(count)))


def _add_pod(plane: ControlPlane, number: int, addresses: list[str]) -> None:
    pool = number % POOLS
    namespace, name = f"team-{pool % NAMESPACES}", f"pool-{pool}-{number}"
    gpus = {"nvidia.com/gpu": "1"}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": f"pool-{pool}"}},
        "spec": {
            "nodeName": f"node-{number % NODES}",
            "containers": [
                {
                    "name": "vllm",
                    "image": "vllm/vllm-openai:v0.11.0",
                    "args": ["--model", "m"],
                    "resources": {"requests": gpus, "limits": gpus},
                }
            ],
        },
    }
    plane.admin.create(PODS, body, namespace=namespace)
    address = addresses[number % len(addresses)]
    status = {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    plane.admin.patch(
        PODS, name, {"status": status}, namespace=namespace, subresource="status", manager="kubelet"
    )


def _endpoints(process: AgentProcess, *, engine: str = "") -> float:
    """Return how many endpoints the metrics count."""
    found: Callable[[str], list[str]] = re.compile(
        rf'^accelerator_pool_endpoints\{{.*engine="{engine or ".*"}".*\}} (\S+)$', re.MULTILINE
    ).findall
    return sum(map(float, found(process.get("/metrics")[1])))


def _written(process: AgentProcess) -> float | None:
    return process.metric('accelerator_publish_writes_total{target="pod"}')


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
