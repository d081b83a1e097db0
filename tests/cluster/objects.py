"""Nodes, Pods, accounts and their tokens, made the way that tests want them."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from agent.cluster import (
    ACCELERATOR_CLASSES,
    ACCELERATOR_NODES,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
)
from tests.cluster.client import ApiClient, ApiError, path_of

Object = dict[str, Any]
T = TypeVar("T")

DAEMONSET_FOLDER = Path(__file__).parents[2] / "deploy" / "daemonset"
NODE_CRD = DAEMONSET_FOLDER / "base" / "acceleratornodes-crd.yaml"
CLASS_CRD = DAEMONSET_FOLDER / "overlays" / "ome-crd" / "acceleratorclasses-crd.yaml"
MINIMAL_CLASS_CRD = Path(__file__).parent / "manifests" / "acceleratorclasses-minimal-crd.yaml"

NAMESPACE = "accelerator-system"
AGENT_ACCOUNT = "accelerator-agent"
INVENTORY_ACCOUNT = "accelerator-inventory"

ACCOUNTS = "/api/v1/namespaces/{namespace}/serviceaccounts"
AT_ONCE: Object = {
    "kind": "DeleteOptions",
    "apiVersion": "v1",
    "gracePeriodSeconds": 0,
    "propagationPolicy": "Background",
}


def eventually(
    found: Callable[[], T | None], *, seconds: float = 15.0, what: str = "what was waited for"
) -> T:
    """Return the first true value of `found()`, asked every 50 ms; fail after `seconds`.

    For what other processes do in their own time; whatever has a clock of ours is tested with a `ManualClock`.
    """
    deadline = time.monotonic() + seconds
    while True:
        value = found()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come about within {seconds:.0f} s")
        time.sleep(0.05)


def documents(path: Path) -> list[Object]:
    """Return the objects of a YAML file."""
    with path.open() as file:
        return [document for document in yaml.load_all(file, Loader=yaml.CSafeLoader) if document is not None]


# Nodes and Pods


def ready_node(
    client: ApiClient,
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Sequence[Object] = (),
    unschedulable: bool = False,
    ready: bool = True,
    resources: Mapping[str, str] | None = None,
) -> Object:
    """Create a Node as a kubelet registers it, and return it.

    `resources` are added to its capacity and allocatable, such as `{"nvidia.com/gpu": "8"}`.
    """
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "1Ti"} | dict(
        resources or {}
    )
    body: Object = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
            }
            | dict(labels or {}),
            "annotations": dict(annotations or {}),
        },
        "spec": {"taints": list(taints), "unschedulable": unschedulable},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [_ready_condition(ready=ready)],
        },
    }
    return client.ask("POST", path_of(NODES), body, query={"fieldManager": "kubelet"})


def set_ready(client: ApiClient, name: str, *, ready: bool) -> None:
    """Change what a Node's condition Ready says, as its kubelet does."""
    body = {"status": {"conditions": [_ready_condition(ready=ready)]}}
    client.patch(NODES, name, body, subresource="status", manager="kubelet")


def set_allocatable(client: ApiClient, name: str, resources: Mapping[str, str | None]) -> None:
    """Change allocatable amounts of a Node; `None` removes one."""
    body = {"status": {"allocatable": dict(resources), "capacity": dict(resources)}}
    client.patch(NODES, name, body, subresource="status", manager="kubelet")


def _ready_condition(*, ready: bool) -> Object:
    status = "True" if ready else "False"
    return {"type": "Ready", "status": status, "reason": "KubeletReady" if ready else "KubeletNotReady"}


def make_pod(
    client: ApiClient,
    name: str,
    *,
    namespace: str = "default",
    node: str | None = None,
    account: str = "default",
    requests: Mapping[str, str] | None = None,
    spec: Object | None = None,
) -> Object:
    """Create a Pod of one container, already bound when `node` is given, and return it; `spec` adds or replaces fields."""
    resources = {"requests": dict(requests or {}), "limits": dict(requests or {})}
    body: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "serviceAccountName": account,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "main",
                    "image": "example.invalid/main",
                    "resources": resources,
                    # What a namespace of the restricted level asks for.
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
        }
        | ({"nodeName": node} if node is not None else {})
        | (spec or {}),
    }
    return client.create(PODS, body, namespace=namespace)


def set_phase(client: ApiClient, name: str, phase: str, *, namespace: str = "default") -> None:
    """Set a Pod's phase (`Running`, `Succeeded`, `Failed`), as its kubelet does."""
    client.patch(
        PODS, name, {"status": {"phase": phase}}, namespace=namespace, subresource="status", manager="kubelet"
    )


def delete_pod(client: ApiClient, name: str, *, namespace: str = "default") -> None:
    """Remove a Pod at once: there is no kubelet to wait for."""
    client.delete(PODS, name, namespace=namespace, options=AT_ONCE)


# Accounts


def make_namespace(client: ApiClient, name: str) -> None:
    """Create a Namespace with its account `default`; nothing happens when it exists."""
    client.apply(
        NAMESPACES,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        manager="tests",
        force=True,
    )
    make_account(client, "default", namespace=name)


def make_account(client: ApiClient, name: str, *, namespace: str = NAMESPACE) -> None:
    """Create a ServiceAccount; nothing happens when it exists."""
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    client.apply(ACCOUNTS.format(namespace=namespace), body, manager="tests", force=True)


def account_token(
    client: ApiClient,
    name: str,
    *,
    namespace: str = NAMESPACE,
    pod: Object | None = None,
    seconds: int = 3600,
) -> str:
    """Return a token of a ServiceAccount from the TokenRequest API, bound to `pod` where one is given.

    A token bound to a Pod on a Node carries `authentication.kubernetes.io/node-name`. The shortest life is 600 s.
    """
    spec: Object = {"expirationSeconds": seconds}
    if pod is not None:
        reference = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod["metadata"]["name"],
            "uid": pod["metadata"]["uid"],
        }
        spec["boundObjectRef"] = reference
    path = f"{ACCOUNTS.format(namespace=namespace)}/{name}/token"
    answer = client.ask(
        "POST", path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    )
    return str(answer["status"]["token"])


def node_token(
    client: ApiClient, node: str, *, account: str = AGENT_ACCOUNT, namespace: str = NAMESPACE
) -> str:
    """Return a token such as the agent's Pod on `node` has: bound to a Pod there, which is made where it is absent.

    Deleting that Pod, `<account>-<node>`, ends the token's validity.
    """
    name = f"{account}-{node}"
    pod = client.find(PODS, name, namespace=namespace)
    if pod is None:
        pod = make_pod(client, name, namespace=namespace, node=node, account=account)
    return account_token(client, account, namespace=namespace, pod=pod)


# Between tests


def remove_objects(client: ApiClient) -> None:
    """Remove every Node, record, class, Pod, Event and Lease that a test may have left; definitions and rights stay."""
    for collection in (NODES, ACCELERATOR_NODES, ACCELERATOR_CLASSES):
        client.delete(collection)
        _release(client, path_of(collection))
    for namespace in _namespaces(client):
        for collection in (PODS, EVENTS, LEASES):
            client.delete(path_of(collection, namespace=namespace), options=AT_ONCE)
        _release(client, path_of(PODS, namespace=namespace))


def _namespaces(client: ApiClient) -> Iterator[str]:
    """Yield the namespaces of tests; `kube-*` hold the servers' own leases."""
    for item in client.items(NAMESPACES):
        name: str = item["metadata"]["name"]
        if not name.startswith("kube-"):
            yield name


def _release(client: ApiClient, path: str) -> None:
    """Take the finalizers off what is left of a collection, such as OME's, whose controller does not run here."""
    answer = client.request("GET", path)
    for item in answer.body.get("items") or []:
        try:
            client.patch(f"{path}/{item['metadata']['name']}", None, {"metadata": {"finalizers": None}})
        except ApiError as error:
            if error.status != 404:  # gone meanwhile is what was wanted
                raise
