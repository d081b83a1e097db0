"""Nodes, Pods and hardware that come and go on a real server, and what the classes must say of them at each moment."""

from dataclasses import replace
from datetime import UTC, datetime

from agent.cluster import ACCELERATOR_CLASSES, ACCELERATOR_NODES, NODES
from probes.facts import DeviceFault
from tests.cluster.objects import delete_pod, make_pod, ready_node
from tests.inventory.hardware import H100, L4, h100, l4, record

KINDS = {H100: h100, L4: l4}


class Churn:
    """Makes one change after the other by chance, and knows the truth."""

    def __init__(self, plane, random):
        self._plane = plane
        self._random = random
        self._serial = 0
        self.nodes = {}
        """Name → (class, devices, how many of them are lost, uid, cordoned)."""
        self.pods = {}
        """Name → (node, devices that it requests)."""
        self.changes = 0

    def step(self):
        """Make one change."""
        self.changes += 1
        kinds = [self.add_node] if len(self.nodes) < 3 else [self.remove_node, self.add_node]
        if self.nodes:
            kinds += [
                self.break_or_mend,
                self.break_or_mend,
                self.cordon_or_not,
                self.add_pod,
                self.remove_pod,
            ]
        self._random.choice(kinds)()

    def add_node(self):
        self._serial += 1
        name, kind, count = f"n-{self._serial}", self._random.choice(list(KINDS)), self._random.choice((4, 8))
        made = ready_node(self._plane.admin, name, resources={"nvidia.com/gpu": str(count)})
        self.nodes[name] = {
            "class": kind,
            "count": count,
            "lost": 0,
            "uid": made["metadata"]["uid"],
            "open": True,
        }
        self._label(name)
        self._write(name)

    def remove_node(self):
        name = self._random.choice(list(self.nodes))
        del self.nodes[name]
        for pod, (node, _) in list(self.pods.items()):
            if node == name:
                self._delete_pod(pod)
        self._plane.admin.delete(NODES, name)
        self._plane.admin.delete(ACCELERATOR_NODES, name)

    def break_or_mend(self):
        name = self._random.choice(list(self.nodes))
        self.nodes[name]["lost"] = 0 if self.nodes[name]["lost"] else self._random.randint(1, 3)
        self._write(name)

    def cordon_or_not(self):
        name = self._random.choice(list(self.nodes))
        self.nodes[name]["open"] = not self.nodes[name]["open"]
        body = {"spec": {"unschedulable": None if self.nodes[name]["open"] else True}}
        self._plane.admin.patch(NODES, name, body, manager="kubectl")

    def add_pod(self):
        self._serial += 1
        node, count = self._random.choice(list(self.nodes)), self._random.randint(1, 2)
        name = f"p-{self._serial}"
        make_pod(self._plane.admin, name, node=node, requests={"nvidia.com/gpu": str(count)})
        self.pods[name] = (node, count)

    def remove_pod(self):
        if self.pods:
            self._delete_pod(self._random.choice(list(self.pods)))

    def truth(self):
        """Return class → (total, available, number of nodes)."""
        found = {}
        for kind in KINDS:
            members = {name: node for name, node in self.nodes.items() if node["class"] == kind}
            total = sum(node["count"] for node in members.values())
            available = sum(
                max(0, node["count"] - node["lost"] - self._requested(name))
                for name, node in members.items()
                if node["open"]
            )
            found[kind] = (total, available, len(members))
        return found

    def told(self):
        """Return class → (total, available, number of nodes) as the server holds them."""
        classes = {one["metadata"]["name"]: one for one in self._plane.admin.items(ACCELERATOR_CLASSES)}
        statuses = {kind: classes.get(kind, {}).get("status", {}) for kind in KINDS}
        return {
            kind: (
                status.get("totalAccelerators", 0),
                status.get("availableAccelerators", 0),
                len(status.get("nodes") or ()),
            )
            for kind, status in statuses.items()
        }

    def _requested(self, name):
        return sum(count for node, count in self.pods.values() if node == name)

    def _delete_pod(self, name):
        del self.pods[name]
        delete_pod(self._plane.admin, name)

    def _label(self, name):
        """Give a Node the labels by which OME finds it, as its agent would."""
        labels = {f"class.accelerators.ome.io/{self.nodes[name]['class']}": "true"}
        self._plane.admin.patch(NODES, name, {"metadata": {"labels": labels}}, manager="accelerator-agent")

    def _write(self, name):
        node = self.nodes[name]
        make = KINDS[node["class"]]
        devices = [make(index) for index in range(node["count"])]
        fault = DeviceFault(kind="lost")
        devices = [replace(one, fault=fault if one.index < node["lost"] else None) for one in devices]
        body = record(name, node["uid"], devices, at=datetime.now(UTC))
        self._plane.admin.apply(ACCELERATOR_NODES, body, manager="accelerator-agent", force=True)
