"""An etcd that is compacted while a watch is away, so that a real server answers 410: nothing is lost or emptied."""

import threading
import time

import pytest

from agent.cluster import ACCELERATOR_CLASSES, ACCELERATOR_NODES, NODES, Gone
from agent.edges.cluster import KubernetesCluster, kubeconfig
from agent.edges.watching import Reflector
from tests.cluster.definitions import install_base, install_crd
from tests.cluster.fault_proxy import FaultProxy
from tests.cluster.faults import refusal
from tests.cluster.objects import CLASS_CRD, INVENTORY_ACCOUNT, account_token, eventually, ready_node
from tests.inventory.hardware import H100, h100
from tests.inventory.test_processes import figures, write_record
from tests.main_path.agent_process import AgentProcess


@pytest.fixture(scope="module")
def compacting(new_control_plane):
    """A cluster to oneself whose history is dropped every two seconds."""
    plane = new_control_plane("--etcd-compaction-interval=2s")
    install_base(plane.admin)
    install_crd(plane.admin, CLASS_CRD)
    yield plane
    plane.stop()


@pytest.fixture
def admin(compacting):
    connection = KubernetesCluster(kubeconfig(str(compacting.admin_kubeconfig)), page_size=2)
    yield connection
    connection.close()


def change_much(plane, *, seconds):
    """Change a Node again and again, so that versions pass and the old ones are dropped."""
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        number += 1
        plane.admin.patch(NODES, "busy", {"metadata": {"annotations": {"n": str(number)}}})
        time.sleep(0.02)


def restart(plane):
    # A server keeps the last versions in memory; a fresh one has only what etcd still has.
    plane.restart_apiserver()
    plane.close_clients()


def test_fr_095_a_version_that_etcd_has_dropped_is_gone_and_a_fresh_list_follows(compacting, admin):
    ready_node(compacting.admin, "busy")
    nodes = Reflector(admin, NODES, view=lambda node: node["metadata"]["uid"], watch_seconds=1.0)
    stop = threading.Event()
    nodes.step(stop)
    version = nodes._version
    assert version is not None
    nodes.drain()
    change_much(compacting, seconds=5.0)
    ready_node(compacting.admin, "made-meanwhile")
    compacting.admin.delete(NODES, "busy")
    restart(compacting)
    with pytest.raises(Gone):
        list(admin.watch(NODES, resource_version=version, timeout_seconds=2.0))
    nodes.step(stop)  # 410
    nodes.step(stop)  # the list
    changed = nodes.drain()
    assert changed["busy"] is None
    assert changed["made-meanwhile"] is not None


def test_fr_082_a_list_whose_history_is_dropped_between_two_pages_is_read_again_and_whole(compacting, admin):
    for number in range(5):
        ready_node(compacting.admin, f"n-{number}")
    ready_node(compacting.admin, "busy")
    first = compacting.admin.ask("GET", "/api/v1/nodes", query={"limit": 2})
    change_much(compacting, seconds=5.0)
    restart(compacting)
    token = first["metadata"]["continue"]
    answer = compacting.admin.request("GET", "/api/v1/nodes", query={"limit": 2, "continue": token})
    assert (answer.status, answer.body["reason"]) == (410, "Expired")
    items, _ = admin.list_all(NODES)
    assert {f"n-{number}" for number in range(5)} < {item["metadata"]["name"] for item in items}


def test_a_controller_whose_watches_were_away_for_so_long_keeps_its_classes_and_finds_what_changed(
    compacting, tmp_path
):
    proxy = FaultProxy(compacting.server, compacting.certificates)
    proxy.start()
    if compacting.admin.find(NODES, "busy") is None:
        ready_node(compacting.admin, "busy")
    node = ready_node(compacting.admin, "gpu-1", resources={"nvidia.com/gpu": "8"})
    write_record(compacting, "gpu-1", [h100(index) for index in range(8)], node["metadata"]["uid"])
    token = account_token(compacting.admin, INVENTORY_ACCOUNT)
    environment = {
        "KUBECONFIG": str(compacting.kubeconfig(token, server=proxy.url)),
        "ACCELERATOR_LISTEN": "127.0.0.1:0",
        "ACCELERATOR_LEASE_NAMESPACE": "accelerator-system",
    }
    seen = set()
    with AgentProcess("inventory", log=tmp_path / "inventory.log", environment=environment) as controller:
        eventually(lambda: figures(compacting) == (8, 8), seconds=30)
        proxy.add(refusal(503), watch=True)
        restart(compacting)
        change_much(compacting, seconds=5.0)
        node = ready_node(compacting.admin, "gpu-2", resources={"nvidia.com/gpu": "1"})
        write_record(compacting, "gpu-2", [h100(9)], node["metadata"]["uid"])
        change_much(compacting, seconds=3.0)
        restart(compacting)
        mark = compacting.audit.mark()
        proxy.clear()

        def reached():
            seen.add(figures(compacting)[0])
            return figures(compacting) == (9, 9)

        eventually(reached, seconds=60)
        asked = [one for one in compacting.audit.since(mark, user=INVENTORY_ACCOUNT) if one.verb == "watch"]
        # Each went on from the version that it had, was told that this is gone, and listed anew.
        for resource in (ACCELERATOR_NODES.plural, NODES.plural):
            anew = ["sendInitialEvents" in one.uri for one in asked if one.resource == resource]
            assert anew[0] is False
            assert True in anew
        assert "bug" not in controller.log
    assert seen <= {8, 9}
    assert compacting.admin.find(ACCELERATOR_CLASSES, H100) is not None
    proxy.close()
