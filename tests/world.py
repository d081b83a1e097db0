"""A cluster in memory with one Node, and the agents that run on it one after the other."""

from pathlib import Path

import yaml

from agent.cluster import ACCELERATOR_NODES, CRDS, NODES
from agent.node_pass import NodePass, NodePassOptions
from fakes.cluster import FakeCluster
from tests.hardware import DOMAIN, ManualClock, facts, h100

DEPLOY = Path(__file__).parent.parent / "deploy/daemonset"
CRD = yaml.load(
    (DEPLOY / "base/acceleratornodes-crd.yaml").read_bytes(),
    yaml.CSafeLoader,
)
FOREIGN = {"team": "search", f"{DOMAIN}/note": "by-hand"}


class World:
    """One Node of a cluster, and the agents that run on it one after the other."""

    def __init__(self):
        self.clock = ManualClock()
        self.cluster = FakeCluster(now=lambda: self.clock().wall)
        self.cluster.apply(CRDS, CRD, manager="kubectl")
        self.make_node()
        self.found = facts(h100(0), h100(1))
        self.agent = self.new_agent()

    def make_node(self):
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1", "labels": dict(FOREIGN)}}
        self.cluster.create(NODES, body, manager="kubectl")

    def new_agent(self, **options):
        """Start the agent anew: nothing is left of what the one before knew."""
        told = {"node_name": "gpu-1", "agent_version": "0.1.0", "allow_simulated": True, **options}
        self.agent = NodePass(
            lambda cycle: self.found(cycle) if callable(self.found) else self.found,
            self.cluster,
            NodePassOptions(**told),
            now=self.clock,
            jitter=lambda: 1.0,
        )
        return self.agent

    def run(self, *found, seconds=60.0):
        """Make a pass for each of these facts (or one with the last), and return the requests of the last."""
        for one in found or (self.found,):
            self.found = one
            self.cluster.calls.clear()
            self.agent.run()
            self.clock.advance(seconds)
        return [(call.verb, call.resource) for call in self.cluster.calls]

    @property
    def labels(self):
        return self.cluster.get(NODES, "gpu-1")["metadata"].get("labels", {})

    @property
    def ours(self):
        return {key: value for key, value in self.labels.items() if key not in FOREIGN}

    @property
    def record(self):
        return self.cluster.get(ACCELERATOR_NODES, "gpu-1")

    @property
    def outcomes(self):
        return {one.target: one.reason for one in self.agent.report.published}

    def condition(self, type_):
        return next(entry for entry in self.record["status"]["conditions"] if entry["type"] == type_)

    def rival(self, labels, manager="kubectl"):
        return self.cluster.merge_patch(NODES, "gpu-1", {"metadata": {"labels": labels}}, manager=manager)
