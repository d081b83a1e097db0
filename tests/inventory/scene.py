"""A cluster, a controller and a clock that a test leads by hand: the same on the fake and on the real API server."""

from datetime import timedelta

from agent.cluster import ACCELERATOR_CLASSES, ACCELERATOR_NODES, EVENTS, NODES, PODS, Forbidden, NotFound
from agent.core.class_spec import ClassOptions
from agent.core.cluster_views import node_view, pod_view, record_view
from agent.core.keys import DEFAULT_DOMAIN
from agent.edges.watching import object_key
from agent.inventory_pass import InventoryPass, InventoryTimes, Sources
from tests.inventory.hardware import START, record

GPU = "nvidia.com/gpu"
AGENT = "accelerator-agent"


class ManualClock:
    """Wall and monotonic time that pass only when told to."""

    def __init__(self, start=START):
        self.wall = start
        self.monotonic = 1000.0

    def advance(self, seconds):
        self.wall += timedelta(seconds=seconds)
        self.monotonic += seconds

    def now(self):
        return self.wall

    def clock(self):
        return self.monotonic


class Polled:
    """A source that reads everything whenever it is drained, so that a turn sees the cluster as it is."""

    def __init__(self, cluster, resource, view):
        self._cluster = cluster
        self._resource = resource
        self._view = view
        self._held = {}
        self.complete = False
        self.absent = False
        self.problem = None

    def drain(self):
        try:
            items, _ = self._cluster.list_all(self._resource)
        except NotFound:
            self.absent = True
            return {}
        except Forbidden as error:
            self.problem = error
            return {}
        self.complete, self.absent, self.problem = True, False, None
        found = {object_key(item): self._view(item) for item in items}
        found = {key: view for key, view in found.items() if view is not None}
        changed = {key: view for key, view in found.items() if self._held.get(key) != view}
        changed |= dict.fromkeys(self._held.keys() - found.keys())
        self._held = found
        return changed


class Scene:
    """Nodes, Pods, people and the controller on one cluster."""

    def __init__(self, cluster, *, clock):
        self.cluster = cluster
        self.time = clock
        self.options = ClassOptions()
        self.times = InventoryTimes()
        self.leading = True
        self.controller = self.new_controller()

    def new_controller(self, options=None):
        """Return a controller that knows nothing yet, as after a restart."""
        self.controller = InventoryPass(
            self.cluster,
            Sources(
                records=Polled(
                    self.cluster, ACCELERATOR_NODES, lambda o: record_view(o, domain=DEFAULT_DOMAIN)
                ),
                nodes=Polled(self.cluster, NODES, node_view),
                pods=Polled(self.cluster, PODS, pod_view),
                classes=Polled(self.cluster, ACCELERATOR_CLASSES, lambda obj: obj),
            ),
            options=options or self.options,
            now=self.time.now,
            clock=self.time.clock,
            leads=lambda: self.leading,
            times=self.times,
        )
        return self.controller

    def node(self, name, devices, *, gpus=None, resources=None, ready=True, **record_options):
        """Make a Node with its record; `gpus` is what its device plugin offers, by default all devices."""
        offered = {GPU: str(len(devices) if gpus is None else gpus)} if resources is None else resources
        amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", **offered}
        condition = {"type": "Ready", "status": "True" if ready else "False", "reason": "Kubelet"}
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [condition]},
        }
        made = self.cluster.create(NODES, body, manager="kubelet")
        self.write_record(name, devices, uid=made["metadata"]["uid"], **record_options)
        return made

    def write_record(self, name, devices, *, uid=None, **options):
        uid = uid or self.cluster.get(NODES, name)["metadata"]["uid"]
        body = record(name, uid, devices, **{"at": self.time.wall, **options})
        self.cluster.apply(ACCELERATOR_NODES, body, manager=AGENT, force=True)

    def set_ready(self, name, *, ready):
        condition = {"type": "Ready", "status": "True" if ready else "False", "reason": "Kubelet"}
        self.node_status(name, {"conditions": [condition]})

    def node_status(self, name, status):
        self.cluster.merge_patch(NODES, name, {"status": status}, manager="kubelet", subresource="status")

    def cordon(self, name, *, on=True):
        self.cluster.merge_patch(NODES, name, {"spec": {"unschedulable": on or None}}, manager="kubectl")

    def remove_node(self, name):
        """Delete a Node; its record goes as the garbage collector would take it."""
        self.cluster.delete(NODES, name)
        self.cluster.delete(ACCELERATOR_NODES, name)

    def pod(self, name, node, gpus, *, resource=GPU, **spec):
        limits = {resource: str(gpus)}
        container = {
            "name": "main",
            "image": "example.invalid/main",
            "resources": {"requests": limits, "limits": limits},
        }
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeName": node, "containers": [container], **spec},
        }
        self.cluster.create(PODS, body, manager="scheduler")

    def phase(self, name, phase):
        patch = {"status": {"phase": phase}}
        self.cluster.merge_patch(
            PODS, name, patch, manager="kubelet", namespace="default", subresource="status"
        )

    def settle(self, *, seconds=6.0, turns=2):
        """Let the controller do all that it has to do."""
        for _ in range(turns):
            self.time.advance(seconds)
            self.controller.turn()

    def turn(self, *, after=0.0):
        self.time.advance(after)
        return self.controller.turn()

    def live(self, name):
        return self.cluster.get(ACCELERATOR_CLASSES, name)

    def figures(self, name):
        """Return (total, available) of a class's status."""
        status = self.live(name).get("status", {})
        return status.get("totalAccelerators"), status.get("availableAccelerators")

    def condition(self, name, kind):
        """Return (status, reason) of one condition."""
        for one in self.live(name).get("status", {}).get("conditions", ()):
            if one["type"] == kind:
                return one["status"], one["reason"]
        return None

    def message(self, name, kind):
        conditions = self.live(name)["status"]["conditions"]
        return next(one["message"] for one in conditions if one["type"] == kind)

    def versions(self):
        """Return the resource versions of all classes, which any write would change."""
        items, _ = self.cluster.list_all(ACCELERATOR_CLASSES)
        return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}

    def events(self):
        """Return (object, reason) of every Event."""
        items, _ = self.cluster.list_all(EVENTS, namespace="default")
        return sorted((item["involvedObject"]["name"], item["reason"]) for item in items)

    def edit(self, name, patch, *, manager="kubectl-edit"):
        """Change a class as a person does."""
        return self.cluster.merge_patch(ACCELERATOR_CLASSES, name, patch, manager=manager)
