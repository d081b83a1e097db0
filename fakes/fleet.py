"""Small fleets of fake machines under the real agents and the real controller, in memory or on a real control plane."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from agent.app import now
from agent.class_settings import class_options
from agent.cluster import ACCELERATOR_NODES, CRDS, NODES, Cluster, Object
from agent.edges.cluster import KubernetesCluster, kubeconfig
from agent.edges.web import Answers, WebServer
from agent.inventory_process import InventoryProcess
from agent.node_pass import NodePass
from agent.node_process import NodeProcess
from agent.settings import load_settings
from agent.wiring import inventory_times, node_pass_options
from fakes.cluster import FakeCluster
from probes.host_process import ProbeHost
from probes.spawned_host import SpawnedHost

FLEET: Mapping[str, str] = {
    "dgx-h100": "h100x8",
    "dgx-h100-sick": "h100x8-one-lost",
    "a100-mig": "a100-80-mig",
    "l40s": "l40s",
    "mixed": "mixed-3080-3090-4090",
}
"""Node name → fake machine."""

_DEPLOY = Path(__file__).parents[1] / "deploy" / "daemonset"
_DEFINITIONS = ("base/acceleratornodes-crd.yaml", "overlays/ome-crd/acceleratorclasses-crd.yaml")
_START_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A fleet that runs."""

    cluster: Cluster
    urls: Mapping[str, str]
    """Who → where its port is."""
    described: str
    hint: str = ""


@contextmanager
def in_memory(fleet: Mapping[str, str] = FLEET) -> Iterator[Fleet]:
    """Run agents and controller in this process, on a cluster in memory."""
    cluster = FakeCluster()
    for definition in _DEFINITIONS:
        for body in yaml.safe_load_all((_DEPLOY / definition).read_text()):
            if body["kind"] == CRDS.kind:
                cluster.create(CRDS, body, manager="demo")
    stop = threading.Event()
    with ExitStack() as running:
        # All probe hosts before the first thread: they fork, and a fork copies only the thread that calls it.
        hosts = {name: running.enter_context(_host(fake)) for name, fake in fleet.items()}
        for name in fleet:
            cluster.create(NODES, _ready_node(name), manager="kubelet")
        agents = {name: _agent(name, host, cluster, stop) for name, host in hosts.items()}
        for name, agent in agents.items():
            running.enter_context(_thread(name, agent.run, stop))
        running.enter_context(_thread("device-plugins", lambda: _play_device_plugins(cluster, stop), stop))
        controller = running.enter_context(_controller(cluster))
        first = next(iter(agents))
        urls = {
            f"agent of {first}": f"http://127.0.0.1:{agents[first].port}/",
            "controller": f"http://127.0.0.1:{controller.port}/",
        }
        yield Fleet(cluster=cluster, urls=urls, described="the cluster in memory")


@contextmanager
def on_a_real_control_plane(fleet: Mapping[str, str] = FLEET) -> Iterator[Fleet]:
    """Run agents and controller as processes of their own, against the control plane of the tests."""
    with ExitStack() as running:
        config = running.enter_context(_control_plane())
        cluster = KubernetesCluster(kubeconfig(str(config)))
        for name in fleet:
            cluster.create(NODES, _ready_node(name), manager="kubelet")
        for name, fake in fleet.items():
            running.enter_context(_process("node", config, fake=fake, node_name=name, allow_simulated="true"))
        running.enter_context(
            _process("inventory", config, lease_namespace="accelerator-system", identity="demo")
        )
        stop = threading.Event()
        running.enter_context(_thread("device-plugins", lambda: _play_device_plugins(cluster, stop), stop))
        hint = f"KUBECONFIG={config} kubectl get acceleratorclasses\n"
        yield Fleet(cluster=cluster, urls={}, described="a real control plane", hint=hint)


@contextmanager
def _thread(name: str, body: Callable[[], object], stop: threading.Event) -> Iterator[None]:
    """Run `body` until the end of the context, which sets `stop` and waits for it."""
    thread = threading.Thread(target=body, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _host(fake: str) -> ProbeHost:
    return ProbeHost(SpawnedHost((sys.executable, "-m", "fakes.child", fake)), simulated=True)


def _agent(name: str, host: ProbeHost, cluster: Cluster, stop: threading.Event) -> NodeProcess:
    environment = {
        "ACCELERATOR_NODE_NAME": name,
        "ACCELERATOR_ALLOW_SIMULATED": "true",
        "ACCELERATOR_PROBE_INTERVAL": "5s",
        "ACCELERATOR_LISTEN": "127.0.0.1:0",
    }
    settings = load_settings({}, environment)
    node_pass = NodePass(host.probe, cluster, node_pass_options(settings), now=now, jitter=lambda: 1.0)
    return NodeProcess(node_pass, host, settings, stop=stop, now=now)


@contextmanager
def _controller(cluster: Cluster) -> Iterator[WebServer]:
    from agent.app import inventory_answers  # noqa: PLC0415

    settings = load_settings({}, {"ACCELERATOR_LISTEN": "127.0.0.1:0", "ACCELERATOR_IDENTITY": "demo"})
    process = InventoryProcess(
        cluster,
        watched=cluster,
        options=class_options(settings),
        times=inventory_times(settings),
        now=lambda: datetime.now(UTC),
        clock=time.monotonic,
        elect=None,
    )
    web = WebServer(settings.listen, Answers(**inventory_answers(process, settings)))
    web.start()
    process.start()
    try:
        yield web
    finally:
        process.stop()
        web.stop()


@contextmanager
def _control_plane() -> Iterator[Path]:
    """Start the control plane of the tests and give the path of its kubeconfig."""
    process = subprocess.Popen(
        (sys.executable, "-m", "tests.cluster", "up"),
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        for line in process.stdout or ():
            if line.startswith("kubeconfig: "):
                yield Path(line.removeprefix("kubeconfig: ").strip())
                return
        message = f"the control plane ended with status {process.wait()}"
        raise RuntimeError(message)
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _process(command: str, config: Path, **settings: str) -> Iterator[None]:
    environment = {
        **os.environ,
        "KUBECONFIG": str(config),
        "ACCELERATOR_PROBE_INTERVAL": "5s",
        "ACCELERATOR_LISTEN": "127.0.0.1:0",
        "ACCELERATOR_LOG_LEVEL": "error",
        **{f"ACCELERATOR_{name.upper()}": value for name, value in settings.items()},
    }
    argv = (sys.executable, "-m", "agent", command)
    process = subprocess.Popen(argv, env=environment)  # noqa: S603  # this project's own program
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _ready_node(name: str) -> Object:
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "fake"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"conditions": [ready], "allocatable": {"cpu": "64"}, "capacity": {"cpu": "64"}},
    }


def _play_device_plugins(cluster: Cluster, stop: threading.Event) -> None:
    """Offer on each Node what its record counts as usable, as a device plugin would."""
    offered: dict[str, dict[str, str]] = {}
    while not stop.wait(0.2):
        for record in cluster.list_all(ACCELERATOR_NODES)[0]:
            name, amounts = record["metadata"]["name"], _usable(record)
            if offered.get(name) != amounts:
                patch: dict[str, Any] = {"status": {"allocatable": amounts, "capacity": amounts}}
                cluster.merge_patch(NODES, name, patch, manager="kubelet", subresource="status")
                offered[name] = amounts


def _usable(record: Object) -> dict[str, str]:
    amounts: dict[str, int] = {}
    for entry in record["spec"].get("classes", ()):
        amounts[entry["resource"]] = amounts.get(entry["resource"], 0) + entry["usable"]
    return {resource: str(count) for resource, count in amounts.items()}
