"""The scene on the fake and on the real API server."""

from datetime import UTC, datetime

import pytest

from agent.cluster import CRDS, SERVING_RUNTIMES
from agent.edges.cluster import KubernetesCluster, kubeconfig
from fakes.cluster import FakeCluster
from tests.cluster.objects import CLASS_CRD, MINIMAL_CLASS_CRD, NODE_CRD, documents
from tests.contract.conftest import eventually, is_served
from tests.contract.definitions import definition
from tests.inventory.scene import ManualClock, Scene

OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def fake_cluster(*definitions, clock):
    cluster = FakeCluster(now=clock.now)
    for path in definitions:
        for body in documents(path):
            cluster.apply(CRDS, body, manager="tests")
    return cluster


@pytest.fixture
def clock():
    # Today: the real server stamps what it creates by the real clock.
    return ManualClock(datetime.now(UTC).replace(microsecond=0))


@pytest.fixture
def fake(clock):
    """The fake with both definitions."""
    return fake_cluster(NODE_CRD, CLASS_CRD, clock=clock)


@pytest.fixture(scope="session")
def real_admin(control_plane):
    connection = KubernetesCluster(kubeconfig(str(control_plane.admin_kubeconfig)))
    yield connection
    connection.close()


@pytest.fixture(params=["fake", "real"])
def scene(request, clock):
    """A scene with the validated definition of classes."""
    if request.param == "fake":
        return Scene(request.getfixturevalue("fake"), clock=clock)
    request.getfixturevalue("fresh_cluster")
    return Scene(request.getfixturevalue("real_admin"), clock=clock)


@pytest.fixture(params=["fake", "real"])
def minimal_scene(request, clock):
    """A scene with the minimal definition of classes."""
    if request.param == "fake":
        return Scene(fake_cluster(NODE_CRD, MINIMAL_CLASS_CRD, clock=clock), clock=clock)
    request.getfixturevalue("minimal_classes")
    return Scene(request.getfixturevalue("real_admin"), clock=clock)


@pytest.fixture(params=["fake", "real"])
def scene_without_classes(request, clock):
    """A scene without OME's definition."""
    if request.param == "fake":
        return Scene(fake_cluster(NODE_CRD, clock=clock), clock=clock)
    request.getfixturevalue("no_classes")
    return Scene(request.getfixturevalue("real_admin"), clock=clock)


@pytest.fixture
def runtime_definition():
    """A function that installs a definition of serving runtimes; it goes with the test."""
    installed = []

    def install(scene):
        body = definition(SERVING_RUNTIMES, spec=OPEN, status=OPEN, subresource=False)
        name = body["metadata"]["name"]
        scene.cluster.apply(CRDS, body, manager="tests", force=True)
        installed.append((scene.cluster, name))
        eventually(lambda: is_served(scene.cluster, SERVING_RUNTIMES))

    yield install
    for cluster, name in installed:
        cluster.delete(CRDS, name)
