"""The controller as a process, with the rights of its account: what the audit log shows of its part for pools."""

import json
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from agent.cluster import ACCELERATOR_NODES, INFERENCE_POOLS
from tests.cluster.definitions import collection_of
from tests.cluster.objects import (
    DAEMONSET_FOLDER,
    INVENTORY_ACCOUNT,
    account_token,
    delete_pod,
    documents,
    eventually,
    make_namespace,
    ready_node,
)
from tests.inventory.hardware import h100, record
from tests.main_path.agent_process import AgentProcess
from tests.pools import expositions
from tests.pools.stage import CLASS, ENGINE, H100, VARIANT, VENDOR, Stage

COMPONENT = DAEMONSET_FOLDER / "components" / "pools"
LABELS = {CLASS: H100, VARIANT: "gpu", VENDOR: "nvidia", ENGINE: "vllm"}
OPENED, UNBOUND, CLOSED = "pools-opened", "pools-unbound", "pools-closed"


@pytest.fixture
def plane(pools_cluster):
    """A control plane with the component's role, which no namespace grants yet, and one Node with its record."""
    (role,) = documents(COMPONENT / "cluster-role.yaml")
    pools_cluster.admin.apply(collection_of(role), role, manager="tests", force=True)
    node = ready_node(pools_cluster.admin, "hopper", resources={"nvidia.com/gpu": "8"})
    body = record("hopper", node["metadata"]["uid"], [h100(0), h100(1)], at=datetime.now(UTC))
    pools_cluster.admin.apply(ACCELERATOR_NODES, body, manager="accelerator-agent", force=True)
    return pools_cluster


@pytest.fixture
def people(plane, real_admin, clock, servers):
    """People and the kubelet; the controller of this stage is never led: the process is."""
    return Stage(
        real_admin,
        clock=clock,
        servers=servers,
        make_namespace=lambda name: make_namespace(plane.admin, name),
        remove_at_once=lambda name, namespace: delete_pod(plane.admin, name, namespace=namespace),
    )


@pytest.fixture
def controller(plane, tmp_path):
    """The controller's process; it has no rights but those of its account."""
    token = account_token(plane.admin, INVENTORY_ACCOUNT)
    plane.admin.delete("/apis/coordination.k8s.io/v1/namespaces/accelerator-system/leases")
    environment = {
        "KUBECONFIG": str(plane.kubeconfig(token)),
        "ACCELERATOR_IDENTITY": "a",
        "ACCELERATOR_LISTEN": "127.0.0.1:0",
    }
    with AgentProcess("inventory", log=tmp_path / "controller.log", environment=environment) as process:
        yield process


def bind(plane, namespace):
    """Do what the component says that a namespace which opted in does."""
    (binding,) = documents(COMPONENT / "role-binding.yaml")
    binding["metadata"]["namespace"] = namespace
    plane.admin.apply(collection_of(binding), binding, manager="tests", force=True)


def unbind(plane, namespace):
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
    plane.admin.delete(path, "accelerator-pools")


def labelled(people, name, namespace):
    return eventually(lambda: people.labels(name, namespace) == LABELS, seconds=20, what="the labels")


def test_of_three_namespaces_only_the_one_that_opted_in_and_granted_it_is_written(plane, people, controller):
    mark = plane.audit.mark()
    for namespace, opt_in in ((OPENED, "true"), (UNBOUND, "true"), (CLOSED, None)):
        people.namespace(namespace, opt_in)
        unbind(plane, namespace)
    bind(plane, OPENED)
    asked = {}
    for namespace in (OPENED, UNBOUND, CLOSED):
        people.pool(namespace=namespace)
        asked[namespace] = people.pod("a", expositions.vllm(), namespace=namespace)
    people.pod("wrong", expositions.sglang(), namespace=OPENED, labels={ENGINE: "vllm"})
    labelled(people, "a", OPENED)
    eventually(lambda: people.events(OPENED), what="the Event")
    # Long enough for a second look at everything.
    eventually(lambda: "bind the ClusterRole accelerator-pools-writer there" in controller.log)
    people.pod("b", expositions.vllm(), namespace=OPENED)
    labelled(people, "b", OPENED)
    assert people.labels("a", CLOSED) == {}
    assert people.labels("a", UNBOUND) == {}
    assert people.events(OPENED) == [
        ("wrong", "PoolLabelContradiction", f"the label {ENGINE} says vllm, and the server is sglang")
    ]
    assert asked[CLOSED].requests == []
    assert {path for path, _ in asked[OPENED].requests} == {"/metrics", "/v1/models"}
    requests = [
        one
        for one in plane.audit.since(mark, user=INVENTORY_ACCOUNT)
        if one.namespace in {OPENED, UNBOUND, CLOSED}
    ]
    assert {(one.namespace, one.verb, one.what, one.status) for one in requests} == {
        (OPENED, "patch", "pods", 200),
        (OPENED, "create", "events", 201),
        (UNBOUND, "patch", "pods", 403),
    }
    assert len([one for one in requests if one.verb == "create"]) == 1
    pools = [one for one in plane.audit.since(mark, user=INVENTORY_ACCOUNT) if one.what == "inferencepools"]
    assert {one.verb for one in pools} <= {"list", "watch"}
    assert f'accelerator_pool_label_contradictions{{namespace="{OPENED}",pool="llama"}} 1.0' in metrics(
        controller
    )


@pytest.mark.usefixtures("controller")
def test_a_pod_that_is_made_anew_is_labelled_within_one_pass(plane, people):
    people.namespace(OPENED, "true")
    bind(plane, OPENED)
    people.pool(namespace=OPENED)
    people.pod("a", expositions.vllm(), namespace=OPENED)
    labelled(people, "a", OPENED)
    for _ in range(3):
        people.remove_at_once("a", OPENED)
        people.pod("a", expositions.vllm(), namespace=OPENED)
        eventually(lambda: people.labels("a", OPENED) == LABELS, seconds=10, what="the labels")


def test_metrics_follow_pools_that_come_and_go(plane, people, controller):
    people.namespace(OPENED, "observe")
    people.pool(namespace=OPENED)
    people.pod("a", expositions.vllm(), namespace=OPENED)
    series = f'accelerator_pool_endpoints{{class="{H100}",engine="vllm",lora="unknown",namespace="{OPENED}",pool="llama"}}'
    eventually(lambda: f"{series} 1.0" in metrics(controller), seconds=20, what="the metric")
    assert f'accelerator_pool_homogeneous{{namespace="{OPENED}",pool="llama"}} 1.0' in metrics(controller)
    # The first pool of another namespace, once the watch of pods runs.
    people.namespace(CLOSED)
    people.pool("other", namespace=CLOSED)
    people.pod("b", namespace=CLOSED, app="other")
    other = f'accelerator_pool_homogeneous{{namespace="{CLOSED}",pool="other"}} 1.0'
    eventually(lambda: other in metrics(controller), seconds=45, what="the pool of another namespace")
    plane.admin.delete(INFERENCE_POOLS, "llama", namespace=OPENED)
    eventually(lambda: series not in metrics(controller), seconds=20, what="the end of the series")


def test_the_command_asks_the_cluster_and_the_pods_itself(plane, people):
    people.namespace(OPENED, "observe")
    people.pool(namespace=OPENED)
    people.pod("a", expositions.vllm(), namespace=OPENED)
    command = [sys.executable, "-m", "agent", "pools", "--kubeconfig", str(plane.admin_kubeconfig)]

    def run(*words):
        return subprocess.run([*command, *words], capture_output=True, text=True, check=False, timeout=30)

    done = run(f"{OPENED}/llama")
    (endpoint,) = json.loads(done.stdout)["endpoints"]
    assert (done.returncode, done.stderr) == (0, "")
    assert (endpoint["class"], endpoint["engine"], endpoint["kvCacheTokens"]) == (H100, "vllm", 432000)
    assert (run("config", f"{OPENED}/llama").returncode, run("nothing").returncode) == (0, 2)


def metrics(controller):
    return controller.get("/metrics")[1]
