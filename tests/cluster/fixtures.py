"""The pytest fixtures of the control plane: one cluster a session, started on first use, clean for each test."""

import os
import sys
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest

from tests.cluster.audit import AuditLog
from tests.cluster.control_plane import ControlPlane
from tests.cluster.definitions import install_base, install_class_crd, install_crd, remove_class_crd
from tests.cluster.fault_proxy import FaultProxy
from tests.cluster.kubelet import Environment, Kubelet
from tests.cluster.objects import CLASS_CRD, MINIMAL_CLASS_CRD, remove_objects
from tests.cluster.program import Program, ProgramUnavailableError, find_or_build


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that reaches the control plane, so that `-m "not cluster"` leaves it out."""
    for item in items:
        if "cluster_program" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.cluster)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    """Skip a test whose fixtures need a program that cannot be had here; in CI it fails."""
    try:
        return (yield)
    except ProgramUnavailableError as error:
        _do_without(error)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Skip a test that itself needs such a program, such as kubectl; in CI it fails."""
    try:
        return (yield)
    except ProgramUnavailableError as error:
        _do_without(error)


def _do_without(error: ProgramUnavailableError) -> NoReturn:
    reason = f"no control plane to test on: {error}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def cluster_program(pytestconfig: pytest.Config) -> Program:
    """Etcd, Kubernetes and kubectl, built on first use."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def say(text: str) -> None:
        with capture.global_and_fixture_disabled():
            # A build of minutes must not look like a hang.
            sys.stderr.write(f"\n{text}\n")

    return find_or_build(say)


@pytest.fixture(scope="session")
def new_control_plane(
    cluster_program: Program, audit_logs: list[AuditLog], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., ControlPlane]]:
    """Make further, empty control planes, with flags of the API server, for tests that need one to themselves.

    Each ends with the session.
    """
    made: list[ControlPlane] = []

    def make(*apiserver_flags: str) -> ControlPlane:
        plane = ControlPlane(
            cluster_program, tmp_path_factory.mktemp("cluster"), apiserver_flags=apiserver_flags
        )
        made.append(plane)
        audit_logs.append(plane.audit)
        plane.start()
        return plane

    yield make
    for plane in made:
        plane.stop()


@pytest.fixture(scope="session")
def audit_logs() -> list[AuditLog]:
    """What every API server of the session has logged so far."""
    return []


@pytest.fixture(scope="session")
def control_plane(new_control_plane: Callable[..., ControlPlane]) -> ControlPlane:
    """The session's etcd and API server, with both definitions and our namespace, accounts, rights and policy."""
    plane = new_control_plane()
    install_base(plane.admin)
    install_crd(plane.admin, CLASS_CRD)
    return plane


@pytest.fixture
def fresh_cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane without any Node, record, class, Pod, Event or Lease; what the test leaves is removed."""
    remove_objects(control_plane.admin)
    yield control_plane
    remove_objects(control_plane.admin)
    control_plane.close_clients()


@pytest.fixture
def fault_proxy(fresh_cluster: ControlPlane) -> Iterator[FaultProxy]:
    """A proxy in front of the fresh cluster's API server, without any fault yet; its `url` is verified by the same CA."""
    proxy = FaultProxy(fresh_cluster.server, fresh_cluster.certificates)
    proxy.start()
    yield proxy
    proxy.close()


@pytest.fixture(scope="module")
def controllers(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with the garbage collector and the workload controllers running, for one test module."""
    control_plane.start_controllers()
    yield control_plane
    control_plane.stop_controllers()


@pytest.fixture(scope="module")
def controllers_and_scheduler(controllers: ControlPlane) -> ControlPlane:
    """The control plane with controllers and scheduler running, for one test module."""
    controllers.start_scheduler()
    return controllers


@pytest.fixture(scope="module")
def new_kubelet(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[ControlPlane, Environment], Kubelet]]:
    """Make and start stand-ins for the kubelets of a control plane; their processes end with the module."""
    made: list[Kubelet] = []

    def make(plane: ControlPlane, environment: Environment) -> Kubelet:
        kubelet = Kubelet(plane, tmp_path_factory.mktemp("kubelet"), environment=environment)
        made.append(kubelet)
        kubelet.start()
        return kubelet

    yield make
    for kubelet in made:
        kubelet.stop()


@pytest.fixture
def minimal_classes(fresh_cluster: ControlPlane) -> Iterator[ControlPlane]:
    """A fresh cluster with the minimal variant of OME's definition, whose `spec` and `status` are one value each."""
    install_class_crd(fresh_cluster.admin, MINIMAL_CLASS_CRD)
    yield fresh_cluster
    install_class_crd(fresh_cluster.admin, CLASS_CRD)


@pytest.fixture
def no_classes(fresh_cluster: ControlPlane) -> Iterator[ControlPlane]:
    """A fresh cluster without OME's definition of `AcceleratorClass`."""
    remove_class_crd(fresh_cluster.admin)
    yield fresh_cluster
    install_class_crd(fresh_cluster.admin, CLASS_CRD)
