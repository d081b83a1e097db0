"""Nodes, pods, pools and the controller's part for them on one cluster, led by hand; the servers behind pods are real."""

from dataclasses import replace

from agent.cluster import (
    ACCELERATOR_NODES,
    EVENTS,
    INFERENCE_POOLS,
    NAMESPACES,
    NODES,
    PODS,
    Conflict,
)
from agent.core.cluster_views import record_view
from agent.core.keys import DEFAULT_DOMAIN
from agent.core.pools.engines import engine_table
from agent.core.pools.names import PoolKeys
from agent.core.pools.views import opt_in_view, pool_pod_view, pool_view
from agent.edges.endpoints import Endpoints
from agent.pools_pass import PoolSources, PoolsPass
from agent.pools_reading import ask_pools, read_pools, reports_of
from tests.inventory.hardware import l4, pci, record
from tests.inventory.scene import Polled
from tests.pools.servers import Servers, free_port

GPU = "nvidia.com/gpu"
H100, L40S = "nvidia-h100-80gb", "nvidia-l40s-48gb"
KEYS = PoolKeys(DEFAULT_DOMAIN)
CLASS, LORA, OPT_IN = KEYS.class_, KEYS.lora, KEYS.opt_in
ENGINE, OLD_ENGINE = "llm-d.ai/engine-type", "inference.networking.k8s.io/engine-type"
VARIANT, VENDOR = "llm-d.ai/accelerator-variant", "llm-d.ai/accelerator-vendor"
VLLM = ["vllm", "serve", "m"]


def l40s(index=0):
    return replace(l4(index), product="NVIDIA L40S", pci=pci(index, "26b9", "1851"), memory_bytes=48305799168)


class Stage:
    """One cluster, one port on which all its model servers listen, and the pass."""

    def __init__(self, cluster, *, clock, make_namespace, remove_at_once, servers=None, times=None):
        self.cluster = cluster
        self.time = clock
        self.servers = servers or Servers()
        self.port = free_port()
        self.table = engine_table()
        self.leading = True
        self.times = times
        self._make_namespace = make_namespace
        self._remove_at_once = remove_at_once
        self.controller = self.new_controller()

    def new_controller(self):
        """Return a pass that knows nothing yet, as after a restart."""
        more = {"times": self.times} if self.times else {}
        self.controller = PoolsPass(
            self.cluster,
            PoolSources(
                pools=Polled(self.cluster, INFERENCE_POOLS, pool_view),
                namespaces=Polled(self.cluster, NAMESPACES, lambda obj: opt_in_view(obj, keys=KEYS)),
                pods=Polled(self.cluster, PODS, lambda obj: pool_pod_view(obj, keys=KEYS, table=self.table)),
                records=self.records,
            ),
            Endpoints(seconds=1.0),
            table=self.table,
            keys=KEYS,
            now=self.time.now,
            clock=self.time.clock,
            leads=lambda: self.leading,
            **more,
        )
        return self.controller

    def records(self):
        items, _ = self.cluster.list_all(ACCELERATOR_NODES)
        return {item["metadata"]["name"]: record_view(item, domain=DEFAULT_DOMAIN) for item in items}

    def namespace(self, name, opt_in=None):
        """Make a Namespace; `opt_in` is what its label says."""
        self._make_namespace(name)
        labels = {OPT_IN: opt_in} if opt_in else {}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        self.cluster.apply(NAMESPACES, body, manager="administrator", force=True)

    def node(self, name, devices):
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        made = self.cluster.create(NODES, body, manager="kubelet")
        written = record(name, made["metadata"]["uid"], devices, at=self.time.wall)
        self.cluster.apply(ACCELERATOR_NODES, written, manager="accelerator-agent", force=True)

    def pool(self, name="llama", namespace="team", *, ports=None, **spec):
        body = {
            "apiVersion": INFERENCE_POOLS.api_version,
            "kind": INFERENCE_POOLS.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "targetPorts": [{"number": port} for port in ports or (self.port,)],
                "endpointPickerRef": {"name": f"{name}-epp", "port": {"number": 9002}},
                **spec,
            },
        }
        return self.cluster.create(INFERENCE_POOLS, body, manager="helm")

    def pod(
        self,
        name,
        metrics=None,
        *,
        node="hopper",
        namespace="team",
        app="llama",
        labels=None,
        annotations=None,
        command=(),
        args=(),
        image="example.invalid/server",
        gpus=1,
        behave=None,
        models=None,
        owner=None,
    ):
        """Make a pod that runs, with a server behind its address; return the server.

        `metrics` is what the server shows, `behave` what a stranger does in its place.
        """
        server = None
        if metrics is not None:
            server = self.servers.model_server(metrics, models=models, port=self.port)
        elif behave is not None:
            server = self.servers.stranger(behave, port=self.port)
        limits = {"resources": {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}}} if gpus else {}
        container = {"name": "server", "image": image, **limits}
        container |= {"command": list(command)} if command else {}
        container |= {"args": list(args)} if args else {}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {"app": app, **(labels or {})},
                "annotations": annotations or {},
            },
            "spec": {"nodeName": node, "containers": [container]},
        }
        self.cluster.create(PODS, body, manager="kube-controller-manager")
        address = server.address if server else "127.77.0.1"
        status = {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self.cluster.merge_patch(
            PODS, name, {"status": status}, manager="kubelet", namespace=namespace, subresource="status"
        )
        if owner:
            # Added here, because the fake takes away at once what is made for an owner that is not there.
            patch = {"metadata": {"ownerReferences": [owner]}}
            self.cluster.merge_patch(
                PODS, name, patch, manager="kube-controller-manager", namespace=namespace
            )
        return server

    def remove_at_once(self, name, namespace="team"):
        """Remove a pod as its kubelet does, once its containers have ended."""
        self._remove_at_once(name, namespace)

    def turn(self, *, after=0.0):
        self.time.advance(after)
        return self.controller.turn()

    def reports(self, *, ask=True):
        """Return the reports as the command makes them, by the pool's name."""
        reading = read_pools(self.cluster, keys=KEYS, table=self.table)
        looks = ask_pools(reading, Endpoints(seconds=1.0), self.table) if ask else {}
        return {
            report.pool.name: report for report in reports_of(reading, looks, keys=KEYS, table=self.table)
        }

    def endpoint(self, pod):
        """Return the one endpoint of a pod as the command reports it."""
        (found,) = (
            one for report in self.reports().values() for one in report.endpoints if one.pod.name == pod
        )
        return found

    def live(self, name, namespace="team"):
        return self.cluster.get(PODS, name, namespace=namespace)

    def labels(self, name, namespace="team"):
        """Return the labels of a pod that are of interest here."""
        held = self.live(name, namespace)["metadata"].get("labels", {})
        return {key: value for key, value in held.items() if key != "app"}

    def annotations(self, name, namespace="team"):
        return self.live(name, namespace)["metadata"].get("annotations") or {}

    def versions(self, namespace="team"):
        items, _ = self.cluster.list_all(PODS, namespace=namespace)
        return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}

    def events(self, namespace="team"):
        items, _ = self.cluster.list_all(EVENTS, namespace=namespace)
        return sorted(
            (item["involvedObject"]["name"], item["reason"], item["message"])
            for item in items
            if item["reason"] == "PoolLabelContradiction"
        )


def ignore_existing(create):
    """Make something once."""
    try:
        create()
    except Conflict:
        return
