"""The stage on the fake and on the real API server."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.cluster import CRDS, INFERENCE_POOLS, NAMESPACES, PODS
from agent.edges.cluster import KubernetesCluster, kubeconfig
from fakes.cluster import FakeCluster
from tests.cluster.client import path_of
from tests.cluster.definitions import install_crd
from tests.cluster.objects import NODE_CRD, delete_pod, documents, eventually, make_namespace
from tests.inventory.scene import ManualClock
from tests.pools.servers import Servers
from tests.pools.stage import Stage, ignore_existing

POOL_CRD = Path(__file__).parents[1] / "cluster" / "manifests" / "inferencepools-crd.yaml"


@pytest.fixture
def servers():
    with Servers() as running:
        yield running


@pytest.fixture
def clock():
    # Today: the real server stamps what it creates by the real clock.
    return ManualClock(datetime.now(UTC).replace(microsecond=0))


@pytest.fixture(scope="session")
def real_admin(control_plane):
    connection = KubernetesCluster(kubeconfig(str(control_plane.admin_kubeconfig)))
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def pool_definition(control_plane):
    """The definition of InferencePool, for one test module."""
    admin, served = control_plane.admin, path_of(INFERENCE_POOLS)
    install_crd(admin, POOL_CRD)
    eventually(lambda: admin.request("GET", served).status == 200, what="the definition of pools")
    yield
    admin.delete(CRDS, documents(POOL_CRD)[0]["metadata"]["name"])
    eventually(lambda: admin.request("GET", served).status == 404, what="the end of the definition of pools")


@pytest.fixture
def pools_cluster(fresh_cluster, request):
    """A fresh control plane with the definition of InferencePool and no pool."""
    request.getfixturevalue("pool_definition")
    for pool in fresh_cluster.admin.items(INFERENCE_POOLS):
        metadata = pool["metadata"]
        fresh_cluster.admin.delete(INFERENCE_POOLS, metadata["name"], namespace=metadata["namespace"])
    return fresh_cluster


def fake_cluster(clock, *definitions):
    cluster = FakeCluster(now=clock.now)
    for path in definitions:
        for body in documents(path):
            cluster.apply(CRDS, body, manager="tests")
    return cluster


@pytest.fixture
def fake_stage(clock, servers):
    """A stage on the fake alone, for logic that no API server has a part in."""
    return on_fake(fake_cluster(clock, NODE_CRD, POOL_CRD), clock, servers)


@pytest.fixture(params=["fake", "real"])
def stage(request, clock, servers):
    if request.param == "fake":
        return request.getfixturevalue("fake_stage")
    plane = request.getfixturevalue("pools_cluster")
    return Stage(
        request.getfixturevalue("real_admin"),
        clock=clock,
        servers=servers,
        make_namespace=lambda name: make_namespace(plane.admin, name),
        remove_at_once=lambda name, namespace: delete_pod(plane.admin, name, namespace=namespace),
    )


@pytest.fixture
def stage_without_pools(clock, servers):
    """A stage whose cluster has no InferencePool."""
    return on_fake(fake_cluster(clock, NODE_CRD), clock, servers)


def on_fake(cluster, clock, servers):
    def make(name):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        ignore_existing(lambda: cluster.create(NAMESPACES, body, manager="kubectl"))

    return Stage(
        cluster,
        clock=clock,
        servers=servers,
        make_namespace=make,
        remove_at_once=lambda name, namespace: cluster.remove(PODS, name, namespace=namespace),
    )
