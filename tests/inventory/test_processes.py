"""The controller as processes of its own, with the rights of its account, on a real API server."""

import time
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from random import Random

import pytest

from agent.cluster import ACCELERATOR_CLASSES, ACCELERATOR_NODES, LEASES
from agent.core.class_status import OME_FINALIZER
from agent.edges.cluster import KubernetesCluster, kubeconfig
from tests.cluster.faults import CutWatch, Silence, refusal
from tests.cluster.objects import INVENTORY_ACCOUNT, account_token, eventually, make_pod, ready_node
from tests.inventory.churn import Churn
from tests.inventory.hardware import H100, h100, record
from tests.inventory.ome import RunningOme
from tests.main_path.agent_process import AgentProcess

EIGHT = [h100(index) for index in range(8)]
NAMESPACE = "accelerator-system"


@pytest.fixture
def start(fresh_cluster, tmp_path):
    """`start(name, server=…)` runs one replica of the controller; all end with the test."""
    fresh_cluster.admin.delete(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases")
    token = account_token(fresh_cluster.admin, INVENTORY_ACCOUNT)
    with ExitStack() as running:

        def run(name, *, server=None):
            environment = {
                "KUBECONFIG": str(fresh_cluster.kubeconfig(token, server=server)),
                "ACCELERATOR_IDENTITY": name,
                "ACCELERATOR_LEASE_NAMESPACE": NAMESPACE,
                "ACCELERATOR_LISTEN": "127.0.0.1:0",
            }
            log = tmp_path / f"{name}.log"
            return running.enter_context(AgentProcess("inventory", log=log, environment=environment))

        yield run


def add_node(cluster, name, devices, *, gpus=None):
    gpus = len(devices) if gpus is None else gpus
    node = ready_node(cluster.admin, name, resources={"nvidia.com/gpu": str(gpus)})
    write_record(cluster, name, devices, node["metadata"]["uid"])


def write_record(cluster, name, devices, uid):
    body = record(name, uid, devices, at=datetime.now(UTC))
    cluster.admin.apply(ACCELERATOR_NODES, body, manager="accelerator-agent", force=True)


def figures(cluster):
    live = cluster.admin.find(ACCELERATOR_CLASSES, H100) or {}
    status = live.get("status", {})
    return status.get("totalAccelerators"), status.get("availableAccelerators")


def leads(replica):
    return replica.metric("accelerator_inventory_leader") == 1.0


def holder(cluster):
    lease = cluster.admin.find(LEASES, "accelerator-inventory", namespace=NAMESPACE)
    return lease["spec"]["holderIdentity"].rpartition("_")[0] if lease else None


def test_of_two_replicas_one_writes_and_hands_over_when_it_is_told_to_stop(fresh_cluster, start):
    first = start("a")
    eventually(lambda: leads(first))
    second = start("b")
    add_node(fresh_cluster, "n1", EIGHT)
    eventually(lambda: figures(fresh_cluster) == (8, 8))
    eventually(lambda: second.metric("accelerator_inventory_leader") == 0.0)
    assert leads(first)
    began = time.monotonic()
    first.process.stop()
    assert time.monotonic() - began < 5
    # The Lease was given back: nobody waits for its end.
    eventually(lambda: leads(second), seconds=8)
    add_node(fresh_cluster, "n2", [h100(9)])
    eventually(lambda: figures(fresh_cluster) == (9, 9))
    assert holder(fresh_cluster) == "b"


def test_a_leader_that_is_killed_is_followed_and_no_wrong_figure_is_seen(fresh_cluster, start):
    first = start("a")
    eventually(lambda: leads(first))
    second = start("b")
    add_node(fresh_cluster, "n1", EIGHT)
    eventually(lambda: figures(fresh_cluster) == (8, 8))
    first.process.kill()
    make_pod(fresh_cluster.admin, "p1", node="n1", requests={"nvidia.com/gpu": "3"})
    seen = set()

    def taken_over():
        seen.add(figures(fresh_cluster))
        return leads(second)

    eventually(taken_over, seconds=25, what="the second replica to lead")
    eventually(lambda: figures(fresh_cluster) == (8, 5))
    assert seen <= {(8, 8), (8, 5)}


def test_a_leader_that_is_cut_off_stops_before_another_leads(fresh_cluster, fault_proxy, start):
    first = start("a", server=fault_proxy.url)
    eventually(lambda: leads(first))
    second = start("b")
    add_node(fresh_cluster, "n1", EIGHT)
    eventually(lambda: figures(fresh_cluster) == (8, 8))
    fault_proxy.add(Silence())
    together = []

    def taken_over():
        both = leads(first), leads(second)
        together.append(both)
        return both[1]

    eventually(taken_over, seconds=30, what="the second replica to lead")
    assert (True, True) not in together
    assert (False, False) in together
    add_node(fresh_cluster, "n2", [h100(9)])
    eventually(lambda: figures(fresh_cluster) == (9, 9))


def test_a_steady_state_is_silent_but_for_the_lease(fresh_cluster, start):
    replica = start("a")
    add_node(fresh_cluster, "n1", EIGHT)
    eventually(lambda: figures(fresh_cluster) == (8, 8))
    # OME's controller claims the class: without it the list of nodes would follow half a minute later.
    finalizers = {"metadata": {"finalizers": [OME_FINALIZER]}}
    fresh_cluster.admin.patch(ACCELERATOR_CLASSES, H100, finalizers, manager="manager")
    mark = fresh_cluster.audit.mark()
    renewals = 3

    def renewed():
        writes = fresh_cluster.audit.since(mark, user=INVENTORY_ACCOUNT, writes_only=True)
        return len(writes) >= renewals and writes

    writes = eventually(renewed, seconds=30)
    assert {request.resource for request in writes} == {"leases"}
    assert leads(replica)


def test_the_server_may_go_away_and_come_back(fresh_cluster, start):
    replica = start("a")
    add_node(fresh_cluster, "n1", EIGHT)
    eventually(lambda: figures(fresh_cluster) == (8, 8))
    fresh_cluster.restart_apiserver()
    with suppress(OSError):  # the connection that the test itself had kept
        figures(fresh_cluster)
    add_node(fresh_cluster, "n2", [h100(9)])
    eventually(lambda: figures(fresh_cluster) == (9, 9), seconds=40)
    assert "bug" not in replica.log


def test_fr_082_faults_of_lists_and_watches_never_empty_a_class(fresh_cluster, fault_proxy, start):
    fault_proxy.add(CutWatch(seconds=1), watch=True)
    fault_proxy.add(refusal(410), path="/acceleratornodes$", watch=True, after=3, times=2)
    fault_proxy.add(refusal(429, retry_after=1), path="/acceleratorclasses", method="PATCH", times=2)
    fault_proxy.add(refusal(500), path="/nodes$", watch=True, after=4, times=3)
    start("a", server=fault_proxy.url)
    add_node(fresh_cluster, "n1", EIGHT)
    eventually(lambda: figures(fresh_cluster) == (8, 8), seconds=30)
    seen = set()
    for number in range(2, 6):
        add_node(fresh_cluster, f"n{number}", [h100(number)])

        def reached(total=7 + number):
            seen.add(figures(fresh_cluster)[0])
            return figures(fresh_cluster) == (total, total)

        eventually(reached, seconds=40)
    assert seen <= {8, 9, 10, 11, 12}


def test_without_the_right_to_read_pods_the_rest_goes_on(fresh_cluster, fault_proxy, start):
    fault_proxy.add(
        refusal(403, message='pods is forbidden: User "x" cannot list resource "pods"'), path="/pods$"
    )
    replica = start("a", server=fault_proxy.url)
    add_node(fresh_cluster, "n1", EIGHT)
    eventually(lambda: figures(fresh_cluster) == (8, None))
    conditions = fresh_cluster.admin.get(ACCELERATOR_CLASSES, H100)["status"]["conditions"]
    known = next(one for one in conditions if one["type"] == "AvailabilityKnown")
    assert (known["status"], known["reason"]) == ("False", "PodsNotReadable")
    assert "cannot list resource" in replica.log


def test_beside_a_running_ome_writes_are_bounded_by_changes_and_the_figures_become_right(
    fresh_cluster, start
):
    """The benchmark `ome_beside` does the same for five minutes."""
    churn = Churn(fresh_cluster, Random(3))
    mark = fresh_cluster.audit.mark()
    start("a")
    config = str(fresh_cluster.admin_kubeconfig)
    with RunningOme(lambda: KubernetesCluster(kubeconfig(config)), lambda: datetime.now(UTC)):
        for _ in range(25):
            churn.step()
            time.sleep(0.4)
        eventually(lambda: churn.told() == churn.truth(), seconds=30)
        writes = fresh_cluster.audit.since(mark, resource="acceleratorclasses", writes_only=True)
        assert len(writes) <= 3 * churn.changes
        assert sum(one.status == 409 for one in writes) <= 5
