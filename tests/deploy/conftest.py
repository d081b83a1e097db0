"""A cluster of two Nodes with their records, on which requests are tried with the real accounts' tokens."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from agent.cluster import ACCELERATOR_CLASSES, ACCELERATOR_NODES, NODES
from tests.cluster.client import ApiClient
from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import INVENTORY_ACCOUNT, account_token, node_token, ready_node, remove_objects

OWN, OTHER = "gpu-1", "gpu-2"


def record(name: str, node: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Return a small record of a Node."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
    return {
        "apiVersion": ACCELERATOR_NODES.api_version,
        "kind": ACCELERATOR_NODES.kind,
        "metadata": {"name": name, "ownerReferences": [owner]},
        "spec": {"agentVersion": "1.0"} | spec,
    }


def accelerator_class(name: str, **spec: Any) -> dict[str, Any]:
    """Return a small class."""
    return {
        "apiVersion": ACCELERATOR_CLASSES.api_version,
        "kind": ACCELERATOR_CLASSES.kind,
        "metadata": {"name": name},
        "spec": {"capabilities": {}, "discovery": {}} | spec,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What the requests are tried on. Every one of them is a dry run, so rows do not change it."""

    plane: ControlPlane
    own: dict[str, Any]
    """The Node `gpu-1`."""
    other: dict[str, Any]
    """The Node `gpu-2`."""
    agent: ApiClient
    """With the token of the agent's Pod on `gpu-1`."""
    unbound: ApiClient
    """With a token of the agent's account that is bound to no Pod."""
    inventory: ApiClient


@pytest.fixture(scope="module")
def stage(control_plane: ControlPlane) -> Iterator[Stage]:
    """Two Nodes with labels, an annotation and a record each, a class, and a client for each account."""
    admin = control_plane.admin
    remove_objects(admin)
    # One key of our domain and one other that the kubelet owns; `family` is the agent's, below.
    labels = {"accelerators.ome.io/rival": "a", "team": "a"}
    nodes = {
        name: ready_node(
            admin,
            name,
            labels=labels,
            annotations={"note": "a"},
            taints=[{"key": "t", "effect": "NoSchedule"}],
        )
        for name in (OWN, OTHER)
    }
    for name, node in nodes.items():
        admin.create(ACCELERATOR_NODES, record(name, node))
    admin.create(ACCELERATOR_CLASSES, accelerator_class("nvidia-h100-80gb"))
    agent = control_plane.client(node_token(admin, OWN))
    family = {"name": OWN, "labels": {"accelerators.ome.io/family": "hopper"}}
    agent.apply(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": family}, manager="accelerator-agent")
    yield Stage(
        plane=control_plane,
        own=nodes[OWN],
        other=nodes[OTHER],
        agent=agent,
        unbound=control_plane.client(account_token(admin, "accelerator-agent")),
        inventory=control_plane.client(account_token(admin, INVENTORY_ACCOUNT)),
    )
    remove_objects(admin)
    control_plane.close_clients()
