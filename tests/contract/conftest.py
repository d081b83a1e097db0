"""The `cluster` of the contract cases: the fake, then the real API server."""

import time

import pytest

from agent.cluster import CRDS, NotFound
from agent.edges.cluster import KubernetesCluster, kubeconfig
from fakes.cluster import FakeCluster
from tests.contract.definitions import DEFINITIONS, PLAIN, SEALED, WIDGETS


def eventually(found, *, seconds=20.0):
    """Return the first true value of `found()`; what other processes do takes its own time."""
    deadline = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < deadline, "did not come about in time"
        time.sleep(0.05)
    return value


@pytest.fixture(scope="session")
def real_connection(control_plane):
    """One connection to the real API server, with the definitions of the cases installed."""
    connection = KubernetesCluster(kubeconfig(str(control_plane.admin_kubeconfig)))
    install(connection)
    yield connection
    connection.close()


@pytest.fixture(params=["fake", "real"])
def cluster(request):
    if request.param == "fake":
        fake = FakeCluster()
        install(fake)
        return fake
    request.getfixturevalue("fresh_cluster")
    connection = request.getfixturevalue("real_connection")
    for resource in (WIDGETS, PLAIN, SEALED):
        for item in connection.list_all(resource)[0]:
            drop(connection, resource, item["metadata"]["name"])
    return connection


def install(connection):
    for body in DEFINITIONS:
        connection.apply(CRDS, body, manager="tests", force=True)
    for resource in (WIDGETS, PLAIN, SEALED):
        eventually(lambda resource=resource: is_served(connection, resource))


def is_served(connection, resource):
    try:
        connection.list_all(resource)
    except NotFound:
        return False
    return True


def drop(connection, resource, name):
    connection.delete(resource, name)
    if connection.get(resource, name) is not None:
        connection.merge_patch(resource, name, {"metadata": {"finalizers": None}}, manager="tests")


@pytest.fixture
def owner_collector(request, cluster):
    """The garbage collector of the real control plane, which learns of new kinds every half minute."""
    if not isinstance(cluster, FakeCluster):
        request.getfixturevalue("controllers")
