"""RBAC of the two accounts: every right that is used is there, and what is not listed is refused."""

from typing import Any

import pytest

from tests.cluster.client import APPLY, MERGE, ApiClient
from tests.deploy.conftest import Stage, accelerator_class, record

NODES = "/api/v1/nodes"
RECORDS = "/apis/accelerators.ome.io/v1alpha1/acceleratornodes"
CLASSES = "/apis/ome.io/v1beta1/acceleratorclasses"
CLASS = f"{CLASSES}/nvidia-h100-80gb"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
OWN_LEASES = LEASES.format("accelerator-system")
SECRETS = "/api/v1/namespaces/accelerator-system/secrets"
OWN_PODS = "/api/v1/namespaces/accelerator-system/pods"
EVENTS = "/api/v1/namespaces/{}/events"
ACCOUNT = "/api/v1/namespaces/accelerator-system/serviceaccounts/accelerator-inventory"

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

POOLS = "/apis/inference.networking.k8s.io/v1/namespaces/default/inferencepools"

LABEL = {"metadata": {"labels": {"accelerators.ome.io/present": "true"}}}
STATUS = {"status": {"totalAccelerators": 8}}
LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "accelerator-inventory"},
    "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15},
}
OTHER_LEASE = LEASE | {"metadata": {"name": "kube-scheduler"}}
EVENT = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "gpu-1.1"},
    "involvedObject": {"kind": "Node", "name": "gpu-1"},
    "reason": "AcceleratorLost",
    "type": "Warning",
}
POD = {"spec": {"containers": [{"name": "a", "image": "a"}]}, "metadata": {"name": "a"}}
TOKEN = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
A_CLASS = accelerator_class("amd-mi300x-192gb")

AGENT_ALLOWED = [
    pytest.param("GET", f"{NODES}/gpu-1", None, id="read its Node"),
    pytest.param("PATCH", f"{NODES}/gpu-1", LABEL, id="label its Node"),
    pytest.param("GET", f"{RECORDS}/gpu-1", None, id="read its record"),
    pytest.param(
        "GET", "/openapi/v3/apis/accelerators.ome.io/v1alpha1", None, id="read the schema of records"
    ),
]

AGENT_REFUSED = [
    pytest.param("GET", NODES, None, id="list Nodes"),
    pytest.param("GET", f"{NODES}?watch=true", None, id="watch Nodes"),
    pytest.param("POST", NODES, {"metadata": {"name": "gpu-9"}}, id="create a Node"),
    pytest.param("PUT", f"{NODES}/gpu-1", {"metadata": {"name": "gpu-1"}}, id="replace its Node"),
    pytest.param("DELETE", f"{NODES}/gpu-1", None, id="delete its Node"),
    pytest.param(
        "PATCH", f"{NODES}/gpu-1/status", {"status": {"capacity": {"a": "1"}}}, id="change its Node's status"
    ),
    pytest.param("GET", f"{NODES}/gpu-1/proxy/pods", None, id="reach the kubelet"),
    pytest.param("GET", RECORDS, None, id="list records"),
    pytest.param("GET", f"{RECORDS}?watch=true", None, id="watch records"),
    pytest.param("DELETE", f"{RECORDS}/gpu-1", None, id="delete its record"),
    pytest.param("DELETE", RECORDS, None, id="delete all records"),
    pytest.param("GET", CLASS, None, id="read a class"),
    pytest.param("PATCH", CLASS, {"spec": {"vendor": "a"}}, id="change a class"),
    pytest.param("POST", CLASSES, A_CLASS, id="create a class"),
    pytest.param("GET", OWN_PODS, None, id="list Pods"),
    pytest.param("GET", f"{OWN_PODS}/accelerator-agent-gpu-1", None, id="read its own Pod"),
    pytest.param("POST", OWN_PODS, POD, id="create a Pod"),
    pytest.param("GET", SECRETS, None, id="list secrets"),
    pytest.param("GET", f"{SECRETS}/a", None, id="read a secret"),
    pytest.param("POST", f"{ACCOUNT}/token", TOKEN, id="ask for the controller's token"),
    pytest.param("POST", OWN_LEASES, LEASE, id="create a Lease"),
    pytest.param("POST", EVENTS.format("default"), EVENT, id="create an Event"),
]

INVENTORY_ALLOWED = [
    pytest.param("GET", "/api/v1/namespaces", None, id="list Namespaces"),
    pytest.param("GET", "/api/v1/namespaces?watch=true&timeoutSeconds=1", None, id="watch Namespaces"),
    pytest.param("GET", NODES, None, id="list Nodes"),
    pytest.param("GET", f"{NODES}?watch=true&timeoutSeconds=1", None, id="watch Nodes"),
    pytest.param("GET", "/api/v1/pods", None, id="list Pods"),
    pytest.param("GET", "/api/v1/pods?watch=true&timeoutSeconds=1", None, id="watch Pods"),
    pytest.param("GET", RECORDS, None, id="list records"),
    pytest.param("GET", f"{RECORDS}?watch=true&timeoutSeconds=1", None, id="watch records"),
    pytest.param("GET", CLASS, None, id="read a class"),
    pytest.param("GET", CLASSES, None, id="list classes"),
    pytest.param("GET", f"{CLASSES}?watch=true&timeoutSeconds=1", None, id="watch classes"),
    pytest.param("POST", CLASSES, A_CLASS, id="create a class"),
    pytest.param("PATCH", CLASS, {"spec": {"vendor": "nvidia"}}, id="change a class"),
    pytest.param("PATCH", f"{CLASS}/status", STATUS, id="change a class's status"),
    pytest.param("POST", OWN_LEASES, LEASE, id="create its Lease"),
    pytest.param("POST", EVENTS.format("default"), EVENT, id="create an Event in default"),
    pytest.param(
        "GET", f"{DEFINITIONS}/acceleratorclasses.ome.io", None, id="read the definition of classes"
    ),
]

INVENTORY_REFUSED = [
    pytest.param(
        "PATCH", "/api/v1/namespaces/default", {"metadata": {"labels": {"a": "b"}}}, id="label a Namespace"
    ),
    pytest.param("PATCH", f"{OWN_PODS}/accelerator-agent-gpu-1", LABEL, id="label a Pod"),
    pytest.param("PATCH", f"{POOLS}/llama", {"spec": {"targetPorts": []}}, id="change a pool"),
    pytest.param("PATCH", f"{POOLS}/llama/status", {"status": {}}, id="change a pool's status"),
    pytest.param("PATCH", f"{NODES}/gpu-1", LABEL, id="label a Node"),
    pytest.param("DELETE", f"{NODES}/gpu-1", None, id="delete a Node"),
    pytest.param("PATCH", f"{RECORDS}/gpu-1", {"spec": {"partial": True}}, id="change a record"),
    pytest.param("DELETE", f"{RECORDS}/gpu-1", None, id="delete a record"),
    pytest.param("DELETE", CLASS, None, id="delete a class"),
    pytest.param("DELETE", CLASSES, None, id="delete all classes"),
    pytest.param("PUT", CLASS, accelerator_class("nvidia-h100-80gb"), id="replace a class"),
    pytest.param(
        "PUT", f"{CLASS}/status", accelerator_class("nvidia-h100-80gb"), id="replace a class's status"
    ),
    pytest.param("POST", OWN_PODS, POD, id="create a Pod"),
    pytest.param("DELETE", f"{OWN_PODS}/accelerator-agent-gpu-1", None, id="delete a Pod"),
    pytest.param("GET", SECRETS, None, id="list secrets"),
    pytest.param("POST", f"{ACCOUNT}/token", TOKEN, id="ask for a token"),
    pytest.param("GET", f"{OWN_LEASES}/kube-scheduler", None, id="read another Lease"),
    pytest.param("PUT", f"{OWN_LEASES}/kube-scheduler", OTHER_LEASE, id="take another Lease"),
    pytest.param("DELETE", f"{OWN_LEASES}/accelerator-inventory", None, id="delete its Lease"),
    pytest.param("POST", LEASES.format("kube-system"), LEASE, id="create a Lease elsewhere"),
    pytest.param("POST", EVENTS.format("kube-system"), EVENT, id="create an Event elsewhere"),
    pytest.param("GET", EVENTS.format("default"), None, id="list Events"),
    pytest.param("PATCH", f"{EVENTS.format('default')}/gpu-1.1", {"count": 2}, id="change an Event"),
    pytest.param(
        "GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", None, id="list definitions"
    ),
]


def status_of(client: ApiClient, method: str, path: str, body: dict[str, Any] | None) -> int:
    """Return the answer to a dry run of the request."""
    url, _, query = path.partition("?")
    options: dict[str, Any] = dict(part.split("=") for part in query.split("&") if part)
    if method != "GET":
        options["dryRun"] = "All"
    content_type = MERGE if method == "PATCH" else "application/json"
    return client.request(method, url, body, query=options, content_type=content_type).status


@pytest.mark.parametrize(("method", "path", "body"), AGENT_ALLOWED)
def test_the_agent_may(stage: Stage, method: str, path: str, body: dict[str, Any] | None) -> None:
    assert status_of(stage.agent, method, path, body) == 200


@pytest.mark.parametrize(("method", "path", "body"), AGENT_REFUSED)
def test_the_agent_may_not(stage: Stage, method: str, path: str, body: dict[str, Any] | None) -> None:
    assert status_of(stage.agent, method, path, body) == 403


def test_the_agent_may_create_its_record_and_change_it_by_apply(stage: Stage) -> None:
    body = record("gpu-1", stage.own)
    answer = stage.agent.request(
        "PATCH",
        f"{RECORDS}/gpu-1",
        body,
        content_type=APPLY,
        query={"fieldManager": "accelerator-agent", "force": True},
    )
    assert answer.status == 200
    stage.plane.admin.delete(RECORDS, "gpu-1")
    answer = stage.agent.request(
        "PATCH",
        f"{RECORDS}/gpu-1",
        body,
        content_type=APPLY,
        query={"fieldManager": "accelerator-agent", "force": True},
    )
    assert answer.status == 201


@pytest.mark.parametrize(("method", "path", "body"), INVENTORY_ALLOWED)
def test_the_controller_may(stage: Stage, method: str, path: str, body: dict[str, Any] | None) -> None:
    assert status_of(stage.inventory, method, path, body) in {200, 201}


@pytest.mark.parametrize(("method", "path", "body"), INVENTORY_REFUSED)
def test_the_controller_may_not(stage: Stage, method: str, path: str, body: dict[str, Any] | None) -> None:
    assert status_of(stage.inventory, method, path, body) == 403


def test_the_controller_may_renew_the_lease_that_it_made(stage: Stage) -> None:
    made = stage.inventory.create(OWN_LEASES, LEASE)
    renewed = stage.inventory.replace(
        OWN_LEASES, "accelerator-inventory", made | {"spec": {"holderIdentity": ""}}
    )
    assert stage.inventory.get(OWN_LEASES, "accelerator-inventory") == renewed
